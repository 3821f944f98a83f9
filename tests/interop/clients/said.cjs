// What every client here does with the echo plugin, and the line that it prints about it.

const WORDS = "grüße, 世界 🐟\u2028";
const FAILURE = "it failed, as it should";

const ECHO = { name: "mcp-fixture.echo", arguments: { message: WORDS } };
const FAIL = { name: "mcp-fixture.fail", arguments: { message: FAILURE } };
const SLEEP = { name: "mcp-fixture.sleep", arguments: { seconds: 0.3, progress: 3 } };

/** Where the server is. */
const url = () => new URL(process.argv[2]);

/** The command and its arguments, where the client is to start the server itself: they stand in place of the address. */
const started = () => (process.argv[2].startsWith("{") ? JSON.parse(process.argv[2]) : undefined);

/** Print what was seen: null stands where this client shows nothing. */
const say = (seen) => console.log(JSON.stringify({ revision: null, progress: null, ...seen }));

/** A process without a loop of its own must not end well where a promise failed. */
const run = (main) =>
  main().catch((error) => {
    console.error(error);
    process.exit(1);
  });

module.exports = { ECHO, FAIL, SLEEP, started, url, say, run };
