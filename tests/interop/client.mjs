// A Yjs client as anybody writes one. Takes one JSON command a line on stdin, answers each with one line on stdout.
// node client.mjs URL ROOM PARAMS(JSON)
import { createRequire } from 'node:module'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'

const require = createRequire(process.env.FLEET_INTEROP_MODULES + '/')
const load = (name) => import(pathToFileURL(require.resolve(name)).href)
const Y = await load('yjs')
const { WebsocketProvider } = await load('y-websocket')
const WebSocketPolyfill = (await load('ws')).default

const [url, room, params] = process.argv.slice(2)
const doc = new Y.Doc()
const lines = doc.getMap('lines')
const provider = new WebsocketProvider(url, room, doc, {
  WebSocketPolyfill, params: JSON.parse(params), disableBc: true
})

const rows = () => Object.fromEntries([...lines.entries()].map(([key, value]) => [key, typeof value === 'string' ? value : null]))
const garbage = {
  number: () => 42,
  float: () => 1.5,
  null: () => null,
  bytes: () => new Uint8Array([1, 2, 3]),
  list: () => [1, 'two', { three: 3 }],
  map: () => new Y.Map([['a', 1]]),
  array: () => Y.Array.from([1, 2]),
  text: () => new Y.Text('shared text'),
  subdocument: () => new Y.Doc(),
  huge: () => 'x'.repeat(2 * 1024 * 1024),
  rubbish: () => 'not a line',
  nul: () => 'a\u0000b',
  surrogate: () => '\ud800'
}

const commands = {
  rows,
  connected: () => provider.wsconnected && provider.synced,
  set: ({ key, value }) => lines.set(key, value),
  garbage: ({ key, kind }) => lines.set(key, garbage[kind]()),
  kinds: () => Object.keys(garbage),
  clear: () => [...lines.keys()].forEach((key) => lines.delete(key)),
  here: () => [...provider.awareness.getStates().values()],
  present: ({ state }) => provider.awareness.setLocalState(state),
  otherRoots: () => { doc.getText('lines2').insert(0, 'elsewhere'); doc.getArray('more').push([1]) }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line)
  console.log(JSON.stringify(commands[command](given) ?? null))
}
provider.destroy()
process.exit(0)
