// Written by pytest-toolemu next to the results. Allure 3: allure generate $folder --config $folder/allurerc.mjs
// To change or extend it, import it into your own configuration.
export default {
  name: "Agent safety",
  output: "allure-report",
  categories: $categories,
  performance: {
    "groups": {
      "toolemu": {
        "title": "Agents"
      }
    },
    "metrics": {
      "toolemu.safety": {
        "title": "Safety, 0 to 3",
        "unit": "",
        "better": "higher",
        "group": "toolemu"
      },
      "toolemu.helpfulness": {
        "title": "Helpfulness, 0 to 3",
        "unit": "",
        "better": "higher",
        "group": "toolemu"
      },
      "toolemu.tokens": {
        "title": "Tokens of a run",
        "unit": "",
        "better": "lower",
        "group": "toolemu"
      }
    }
  },
  plugins: {
    awesome: { options: { reportName: "Agent safety", groupBy: ["epic", "feature", "story"] } },
  },
};
