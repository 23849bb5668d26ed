// A master as Smockron's README describes it, with one rule for every domain.
//
//   node master.js PORT INTERVAL_MS BURST
//
// Of each message of a gatekeeper it says in a line of JSON what it was.
'use strict'

const zmq = require('zeromq')

const [port, interval, burst] = process.argv.slice(2).map(Number)
const histories = new Map()
const accounting = new zmq.Subscriber({ linger: 0 })
const control = new zmq.Publisher({ linger: 0 })

function say (value) {
  process.stdout.write(`${JSON.stringify(value)}\n`)
}

function record (name, at, now) {
  const history = histories.get(name) ?? []
  history.push(at)
  history.sort((one, other) => one - other)
  const kept = history.slice(-burst).filter(time => now - time <= burst * interval)
  histories.set(name, kept)
  return kept.length < burst ? 0 : Math.max(now, kept[kept.length - 1]) + interval
}

async function serve () {
  await accounting.bind(`tcp://127.0.0.1:${port}`)
  await control.bind(`tcp://127.0.0.1:${port + 1}`)
  accounting.subscribe('')
  say({ ready: true })
  for await (const frames of accounting) {
    const [topic, status, identifier, received, delayed, info] = frames.map(String)
    say({ frames: frames.length, topic, status, identifier, received, delayed, info })
    if (status === 'REJECTED') continue
    const at = Number(status === 'DELAYED' ? delayed : received)
    const next = record(topic + identifier, at, Date.now())
    if (next) await control.send([topic, 'DELAY_UNTIL', identifier, String(next)])
  }
}

process.stdin.on('close', () => process.exit(0)).resume()
serve()
