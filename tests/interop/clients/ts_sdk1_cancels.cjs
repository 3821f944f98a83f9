// The TypeScript SDK gives a call up: what comes after must find the place free.

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { ECHO, url, say, run } = require("./said.cjs");

run(async () => {
  const client = new Client({ name: "ts-sdk1", version: "1" });
  await client.connect(new SSEClientTransport(url()));
  const sleep = { name: "mcp-fixture.sleep", arguments: { seconds: 4 } };
  const given_up = await client.callTool(sleep, undefined, { signal: AbortSignal.timeout(300) }).catch((error) => error);
  if (!(given_up instanceof Error)) throw new Error("it was answered");
  const after = await client.callTool(ECHO);
  say({ after: after.structuredContent?.message });
  await client.close();
});
