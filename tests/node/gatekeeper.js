// A gatekeeper as Smockron's README describes it, which is told by lines when a request comes.
//
//   node gatekeeper.js PORT DOMAIN MAX_DELAY_MS
//
// Each line of its input is the identifier of a request. Of each it says in a line of JSON what it
// did (`status`, and `until` if it is delayed), and of each message of the master what that was.
'use strict'

const readline = require('node:readline')
const zmq = require('zeromq')

const [port, domain, maxDelay] = [Number(process.argv[2]), process.argv[3], Number(process.argv[4])]
const topic = `${domain}\0`
const notBefore = new Map()
const accounting = new zmq.Publisher({ linger: 0 })
const control = new zmq.Subscriber({ linger: 0 })

function say (value) {
  process.stdout.write(`${JSON.stringify(value)}\n`)
}

async function request (identifier) {
  const now = Date.now()
  const until = notBefore.get(identifier) ?? 0
  let status = 'ACCEPTED'
  let delayed = ''
  if (until > now) {
    status = until - now > maxDelay ? 'REJECTED' : 'DELAYED'
    delayed = status === 'DELAYED' ? String(until) : ''
  }
  await accounting.send([topic, status, identifier, String(now), delayed, 'node'])
  say({ identifier, status, until: Number(delayed) })
}

async function hear () {
  for await (const [first, command, identifier, time] of control) {
    const message = { topic: first.toString(), command: command.toString() }
    if (message.command === 'DELAY_UNTIL') {
      message.identifier = identifier.toString()
      message.until = Number(time.toString())
      const known = notBefore.get(message.identifier) ?? 0
      notBefore.set(message.identifier, Math.max(known, message.until))
    }
    say(message)
  }
}

accounting.connect(`tcp://127.0.0.1:${port}`)
control.connect(`tcp://127.0.0.1:${port + 1}`)
control.subscribe(topic)
hear()
readline.createInterface({ input: process.stdin }).on('line', request).on('close', () => process.exit(0))
say({ ready: true })
