// Call a tool with version 1 of the official TypeScript SDK; URL and time-out in seconds are the arguments.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, timeout] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
await client.ping();
const names = (await client.listTools()).tools.map((tool) => tool.name);
const call = (n) =>
  client.callTool({ name: names[0], arguments: { locker: String(n) } }, undefined, { timeout: timeout * 1000 });
try {
  const results = await Promise.all([0, 1, 2].map(call));
  const numbers = results.map((result) => result.structuredContent.nth).sort();
  console.log(JSON.stringify({ tools: names, numbers }));
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
await transport.terminateSession();
await client.close();
