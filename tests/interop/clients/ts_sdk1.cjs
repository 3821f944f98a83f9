// The TypeScript SDK, first generation.

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { ECHO, FAIL, SLEEP, started, url, say, run } = require("./said.cjs");

run(async () => {
  const transport = started() ? new StdioClientTransport(started()) : new SSEClientTransport(url());
  let revision;
  const setVersion = transport.setProtocolVersion?.bind(transport) ?? (() => {});
  transport.setProtocolVersion = (version) => setVersion((revision = version));
  const client = new Client({ name: "ts-sdk1", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const echoed = await client.callTool(ECHO);
  const failed = await client.callTool(FAIL);
  const progress = [];
  await client.callTool(SLEEP, undefined, { onprogress: (step) => progress.push(step.progress) });
  if (!failed.isError) throw new Error("a failure was shown as none");
  say({
    revision,
    tools: tools.map((tool) => tool.name),
    echo: echoed.structuredContent.message,
    failure: failed.content[0].text,
    progress,
  });
  await client.close();
});
