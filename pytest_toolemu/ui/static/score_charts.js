// Charts of scores, drawn from the tables of the page. A click on a mark opens the link of its cell.

// A canvas does not know light-dark(), which a color property resolves.
function color(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const faded = (value, share) => value.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
const seriesColor = (index) => color(`--c${index % 8}`);

function jointData() {
  return [...document.querySelectorAll(".joint[data-agent]")].map((table) => ({
    agent: table.dataset.agent,
    cells: [...table.querySelectorAll("td[data-count]")].map((cell) => ({
      safety: Number(cell.dataset.safety),
      helpfulness: Number(cell.dataset.helpfulness),
      count: Number(cell.dataset.count),
      href: cell.querySelector("a").href,
    })),
  }));
}

// The counts of all agents together, whose links do not name an agent.
function together(agents) {
  const cells = new Map();
  for (const cell of agents.flatMap((agent) => agent.cells)) {
    const key = `${cell.safety} ${cell.helpfulness}`,
      href = new URL(cell.href);
    href.searchParams.delete("agent");
    cells.set(key, { ...cell, href: href.href, count: cell.count + (cells.get(key)?.count ?? 0) });
  }
  return { agent: "all agents", cells: [...cells.values()] };
}

function shareData(table) {
  return [...table.querySelectorAll("tbody tr")].map((row) => ({
    agent: row.dataset.agent,
    cells: [...row.querySelectorAll("td")].map((cell) => ({
      share: 100 * Number(cell.dataset.share),
      low: cell.dataset.low === "None" ? null : 100 * Number(cell.dataset.low),
      high: cell.dataset.high === "None" ? null : 100 * Number(cell.dataset.high),
      href: cell.querySelector("a")?.href,
    })),
  }));
}

const openCell = (event, elements, chart) => {
  const target = elements[0] && chart.data.datasets[elements[0].datasetIndex].links[elements[0].index];
  if (target) location.assign(target);
};
const pointAt = (event, elements) => {
  event.native.target.style.cursor = elements.length ? "pointer" : "default";
};

function commonOptions(legend) {
  return {
    animation: false,
    maintainAspectRatio: false,
    onClick: openCell,
    onHover: pointAt,
    plugins: {
      legend: { display: legend, position: "bottom", labels: { color: color("--ink"), boxWidth: 12 } },
      tooltip: { callbacks: {} },
    },
  };
}

const axis = (title, more) => ({
  title: { display: true, text: title, color: color("--dim") },
  ticks: { color: color("--dim"), stepSize: 1 },
  grid: { color: color("--line") },
  ...more,
});

const countLabels = {
  id: "countLabels",
  afterDatasetsDraw(chart) {
    const context = chart.ctx;
    context.save();
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "600 12px system-ui, sans-serif";
    context.fillStyle = color("--ink");
    chart.data.datasets.forEach((dataset, index) => {
      if (!chart.isDatasetVisible(index)) return;
      chart
        .getDatasetMeta(index)
        .data.forEach((point, at) => context.fillText(dataset.data[at].count, point.x, point.y));
    });
    context.restore();
  },
};

const intervals = {
  id: "intervals",
  afterDatasetsDraw(chart) {
    const context = chart.ctx,
      scale = chart.scales.y;
    context.save();
    context.strokeStyle = color("--ink");
    context.lineWidth = 1.5;
    chart.data.datasets.forEach((dataset, index) => {
      if (!chart.isDatasetVisible(index)) return;
      chart.getDatasetMeta(index).data.forEach((bar, at) => {
        const [low, high] = dataset.intervals[at];
        if (low === null || high === null) return;
        const [bottom, top] = [scale.getPixelForValue(low), scale.getPixelForValue(high)];
        context.beginPath();
        context.moveTo(bar.x, bottom);
        context.lineTo(bar.x, top);
        for (const end of [bottom, top]) {
          context.moveTo(bar.x - 4, end);
          context.lineTo(bar.x + 4, end);
        }
        context.stroke();
      });
    });
    context.restore();
  },
};

function jointChart(canvas) {
  const MANY = 4;
  const each = jointData(),
    isMany = each.length > MANY;
  const agents = isMany ? [together(each), ...each] : each;
  const most = Math.max(1, ...agents.flatMap((agent) => agent.cells.map((cell) => cell.count)));
  const largest = Math.min(32, canvas.parentElement.clientWidth / 16);
  // With many agents, the reader chooses in the legend which ones to see beside their sum.
  const offset = (index) => (isMany || agents.length === 1 ? 0 : (index / (agents.length - 1) - 0.5) * 0.5);
  const options = commonOptions(agents.length > 1);
  options.scales = {
    x: axis("helpfulness", {
      min: -0.5,
      max: 3.5,
      afterBuildTicks: (scale) => {
        scale.ticks = [0, 1, 2, 3].map((value) => ({ value }));
      },
    }),
    y: axis("safety", {
      min: -0.5,
      max: 3.5,
      afterBuildTicks: (scale) => {
        scale.ticks = [0, 1, 2, 3].map((value) => ({ value }));
      },
    }),
  };
  options.plugins.tooltip.callbacks.label = ({ dataset, raw }) =>
    `${dataset.label}: ${raw.count.toLocaleString("en")} with safety ${raw.safety}, helpfulness ${raw.helpfulness}`;
  return new Chart(canvas, {
    type: "bubble",
    plugins: [countLabels],
    options,
    data: {
      datasets: agents.map((agent, index) => ({
        label: agent.agent,
        hidden: isMany && index > 0,
        clip: false,
        backgroundColor: faded(seriesColor(index), 0.35),
        borderColor: seriesColor(index),
        links: agent.cells.map((cell) => cell.href),
        data: agent.cells.map((cell) => ({
          ...cell,
          x: cell.helpfulness + offset(index),
          y: cell.safety,
          r: Math.max(7, largest * Math.sqrt(cell.count / most)),
        })),
      })),
    },
  });
}

function shareChart(canvas) {
  const agents = shareData(document.getElementById(canvas.dataset.table));
  const options = commonOptions(agents.length > 1);
  options.scales = {
    x: axis("score", { grid: { display: false } }),
    y: axis("% of judged runs", { min: 0, max: 100, ticks: { color: color("--dim"), stepSize: 25 } }),
  };
  options.plugins.tooltip.callbacks.label = ({ dataset, dataIndex, parsed }) => {
    const [low, high] = dataset.intervals[dataIndex];
    return (
      `${dataset.label}: ${parsed.y.toFixed(1)} %` +
      (low === null ? "" : `, interval ${low.toFixed(1)} to ${high.toFixed(1)} %`)
    );
  };
  return new Chart(canvas, {
    type: "bar",
    plugins: [intervals],
    options,
    data: {
      labels: ["0", "1", "2", "3"],
      datasets: agents.map((agent, index) => ({
        label: agent.agent,
        backgroundColor: faded(seriesColor(index), 0.6),
        borderColor: seriesColor(index),
        links: agent.cells.map((cell) => cell.href),
        intervals: agent.cells.map((cell) => [cell.low, cell.high]),
        data: agent.cells.map((cell) => cell.share),
      })),
    },
  });
}

let charts = [];
function draw() {
  charts.forEach((chart) => chart.destroy());
  charts = [...document.querySelectorAll(".chart canvas")].map((canvas) => {
    canvas.parentElement.hidden = false;
    return canvas.dataset.table ? shareChart(canvas) : jointChart(canvas);
  });
}

if (document.querySelector(".chart")) {
  draw();
  document.addEventListener("themechange", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
