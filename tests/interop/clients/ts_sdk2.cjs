// The TypeScript SDK, second generation; the second argument is how it negotiates: auto or legacy.

const { Client, SSEClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");
const { ECHO, FAIL, SLEEP, started, url, say, run } = require("./said.cjs");

run(async () => {
  const client = new Client({ name: "ts-sdk2", version: "1" }, { versionNegotiation: { mode: process.argv[3] } });
  await client.connect(started() ? new StdioClientTransport(started()) : new SSEClientTransport(url()));
  const { tools } = await client.listTools();
  const echoed = await client.callTool(ECHO);
  const failed = await client.callTool(FAIL);
  const progress = [];
  await client.callTool(SLEEP, { onprogress: (step) => progress.push(step.progress) });
  if (!failed.isError) throw new Error("a failure was shown as none");
  say({
    revision: client.getNegotiatedProtocolVersion(),
    tools: tools.map((tool) => tool.name),
    echo: echoed.structuredContent.message,
    failure: failed.content[0].text,
    progress,
  });
  await client.close();
});
