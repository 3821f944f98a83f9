// A TypeScript SDK gives a call up: what comes after must find the place free. The second argument is its generation.

const { ECHO, url, say, run } = require("./said.cjs");

function generation(which) {
  if (which === "2") return require("@modelcontextprotocol/client");
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
  // It takes the schema of the answer before the options.
  class Same extends Client {
    callTool = (call, options) => super.callTool(call, undefined, options);
  }
  return { Client: Same, SSEClientTransport };
}

run(async () => {
  const { Client, SSEClientTransport } = generation(process.argv[3]);
  const client = new Client({ name: "ts-cancels", version: "1" });
  await client.connect(new SSEClientTransport(url()));
  const sleep = { name: "mcp-fixture.sleep", arguments: { seconds: 100 } };
  const given_up = await client.callTool(sleep, { signal: AbortSignal.timeout(300) }).catch((error) => error);
  if (!(given_up instanceof Error)) throw new Error("it was answered");
  // The cancel and what comes after are two requests of their own, which may overtake one another: look again for half
  // a minute, far less than the call that was given up would still take.
  let after = await client.callTool(ECHO);
  for (const until = Date.now() + 30000; after.isError && Date.now() < until; ) {
    await new Promise((soon) => setTimeout(soon, 50));
    after = await client.callTool(ECHO);
  }
  say({ after: after.structuredContent?.message });
  await client.close();
});
