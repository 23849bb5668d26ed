// An upstream of HTTP/2 in clear text:
//
//   node http2_server.js PORT
//
// It answers with the body of the request, or with its path, and the number of the request in a
// trailer. Of each request that has an `x-id` it writes this to its standard output.
'use strict'

const http2 = require('http2')

let count = 0
const server = http2.createServer()

server.on('stream', (stream, headers) => {
  const id = headers['x-id']
  const pieces = []
  stream.on('error', () => {})
  stream.on('data', piece => pieces.push(piece))
  stream.on('end', () => {
    count += 1
    if (id !== undefined) process.stdout.write(`${id}\n`)
    const body = pieces.length ? Buffer.concat(pieces) : Buffer.from(headers[':path'])
    stream.respond({ ':status': 200, 'x-method': headers[':method'] }, { waitForTrailers: true })
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-count': String(count) }))
    stream.end(body)
  })
})

server.listen(Number(process.argv[2]), '127.0.0.1')
