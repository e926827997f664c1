// Verify a webhook of Hermes, its id and its time included. Run it: SECRET=... node receiver.mjs 8000
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const equal = (a, b) => a.length === b.length && timingSafeEqual(a, b);
createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": given = "" } = request.headers;
  const hmac = createHmac("sha256", process.env.SECRET).update(`${id}.${time}.`);
  const right = Buffer.from("v1," + hmac.update(Buffer.concat(chunks)).digest("base64"));
  const fresh = Math.abs(Date.now() / 1000 - Number(time)) < 300;
  const known = given.split(" ").some((one) => equal(Buffer.from(one), right));
  response.writeHead(fresh && known ? 204 : 401).end();
}).listen(Number(process.argv[2]), "127.0.0.1");
