// Decrypts bodies of Web Push with http_ece. It reads {private, auth, bodies} from stdin, all in
// base64url, and writes the texts as a JSON array.
const { createECDH } = require('node:crypto');
const { readFileSync } = require('node:fs');
const { createRequire } = require('node:module');

const ece = createRequire(process.argv[2])('http_ece');
const input = JSON.parse(readFileSync(0, 'utf8'));
const privateKey = createECDH('prime256v1');
privateKey.setPrivateKey(Buffer.from(input.private, 'base64url'));
const texts = input.bodies.map((body) =>
  ece
    .decrypt(Buffer.from(body, 'base64url'), {
      version: 'aes128gcm', privateKey, authSecret: input.auth,
    })
    .toString('utf8'),
);
process.stdout.write(JSON.stringify(texts));
