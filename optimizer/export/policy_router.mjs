// Decides as retroute's router does: features by the portable rules, then policy.onnx.
//
//   npm install onnxruntime-node
//   import { load } from "./policy_router.mjs";
//   const policy = await load("policy");                     // the folder beside this file
//   const decision = await policy.decide({ messages, tools, response_format }, ["small", "big"]);
//   decision.action; decision.propensity;                    // log both, and decision.attributes on the span
//
// context: messages ([{role, content: text or parts}], or one text), tools, response_format and history, as
// optimizer/runtime.py's `featurise` reads them. The second argument names the actions that may be taken; none: all.
// What only a host can do is left to it: the manifest's canary, validity, KILL file and signature.
//
// `node policy_router.mjs policy` computes the golden vectors and prints the largest differences.

import { createHash, randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as ort from "onnxruntime-node";

const RULES = JSON.parse(String.raw`RULES_OF_THE_RUNTIME`);

const GROUP_OF = new Map();
Object.values(RULES.keywords).forEach((words, place) => words.split(" ").forEach((word) => GROUP_OF.set(word, place)));
const ROLE_OF = new Map(Object.entries(RULES.roles));

// The regular expressions are those of runtime.py. Its "start of a line" follows a line feed only, JavaScript's others too.
const TOKEN = /[a-z0-9]+/g;
const NUMBER = /[0-9]+/g;
const CHOICE = /(?:^|[ \t\n])\(?[a-j][.):](?=[ \t\n])/g;
const LIST_ITEM = /(?<![^\n])[ \t]*(?:[-*]|[0-9]+[.)])[ \t]/g;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const matches = (text, pattern) => text.match(pattern) ?? [];
const among = (text, characters) => [...text].filter((one) => characters.includes(one)).length;
const parts = (text, separator) => text.split(separator).length - 1;

function textOf(content) {
  if (typeof content === "string") return [content, 0];
  const texts = [];
  let other = 0;
  for (const part of Array.isArray(content) ? content : []) {
    const text = isObject(part) ? (typeof part.text === "string" ? part.text : part.content) : part;
    if (typeof text === "string") texts.push(text);
    else other += 1;
  }
  return [texts.join("\n"), other];
}

function* messagesOf(messages) {
  if (typeof messages === "string") yield ["user", messages, 0];
  for (const message of Array.isArray(messages) ? messages : []) {
    if (!isObject(message)) continue;
    const [text, other] = textOf(message.content ?? message.parts);
    yield [typeof message.role === "string" ? message.role : "", text, other];
  }
}

function sizeOf(value) {
  if (Number.isInteger(value)) return Math.min(Math.max(value, 0), 1_000_000);
  if (Array.isArray(value)) return value.length;
  return isObject(value) ? Object.keys(value).length : 0;
}

const CRC = Uint32Array.from({ length: 256 }, (_, code) => {
  for (let bit = 0; bit < 8; bit++) code = code & 1 ? (code >>> 1) ^ 0xedb88320 : code >>> 1;
  return code >>> 0;
});

function crc32(text) {
  let code = 0xffffffff;
  for (let at = 0; at < text.length; at++) code = (code >>> 8) ^ CRC[(code ^ text.charCodeAt(at)) & 255];
  return (code ^ 0xffffffff) >>> 0;
}

function hashed(tokens) {
  const counts = new Float64Array(RULES.hashed);
  const pairs = tokens.slice(1).map((token, place) => `${tokens[place]} ${token}`);
  for (const code of [...tokens, ...pairs].map(crc32)) counts[code % RULES.hashed] += code >>> 31 ? -1 : 1;
  const norm = Math.sqrt(counts.reduce((sum, count) => sum + count * count, 0));
  return norm > 0 ? Array.from(counts, (count) => count / norm) : Array.from(counts);
}

// The nearest float16, ties to even, as its bits and as the number.
function half(value) {
  const size = Math.abs(value);
  const exponent = size === 0 ? -14 : Math.max(Math.floor(Math.log2(size)), -14);
  const steps = size / 2 ** (exponent - 10);
  const down = Math.floor(steps);
  const rest = steps - down;
  const rounded = rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down; // 2048 carries into the exponent
  const bits = (value < 0 || Object.is(value, -0) ? 0x8000 : 0) + rounded + (exponent + 14) * 1024;
  return [bits, Math.sign(value) * rounded * 2 ** (exponent - 10)];
}

function features64(context) {
  const roles = [0, 0, 0, 0];
  let attachments = 0;
  let total = 0;
  let prompt = [];
  for (const [role, text, other] of messagesOf(context.messages)) {
    const place = ROLE_OF.get(role);
    if (place !== undefined) roles[place] += 1;
    attachments += other;
    const points = Array.from(text);
    total += points.length;
    if (place === 1 && text) prompt = points;
  }
  const most = RULES.code_points;
  const composed = prompt.slice(0, 2 * most).join("").normalize("NFC");
  const plain = Array.from(composed).slice(0, most);
  const lowered = Array.from(composed.toLowerCase()).slice(0, most);
  const head = lowered.map((one) => (one.codePointAt(0) < 128 ? one : "?")).join("");
  const words = matches(head, TOKEN);
  const tokens = words.slice(0, RULES.tokens);
  const groups = Object.keys(RULES.keywords).map(() => 0);
  for (const token of tokens) if (GROUP_OF.has(token)) groups[GROUP_OF.get(token)] += 1;
  const size = Math.max(plain.length, 1);
  const format = isObject(context.response_format) ? context.response_format.type : context.response_format;
  return [
    Math.log1p(prompt.length),
    Math.log1p(words.length),
    Math.log1p(plain.length ? plain.filter((one) => one === "\n").length + 1 : 0),
    Math.log1p(among(head, "0123456789")),
    Math.log1p(matches(head, NUMBER).length),
    Math.log1p(lowered.filter((one) => one === "?").length),
    Math.log1p(parts(plain.join(""), "```")),
    Math.log1p(among(head, RULES.math_symbols)),
    Math.log1p(among(head, RULES.brackets)),
    plain.filter((one) => one >= "A" && one <= "Z").length / size,
    plain.filter((one) => one.codePointAt(0) > 127).length / size,
    words.length ? Math.log1p(words.join("").length / words.length) : 0,
    words.length ? new Set(words).size / words.length : 0,
    Math.log1p(matches(head, CHOICE).length),
    Math.log1p(matches(head, LIST_ITEM).length),
    Math.log1p(attachments),
    ...groups.map(Math.log1p),
    ...roles.map(Math.log1p),
    Math.log1p(total),
    Math.log1p(sizeOf(context.tools)),
    Number(typeof format === "string" && format.startsWith("json")),
    Math.log1p(sizeOf(context.history)),
    ...hashed(tokens),
  ];
}

export function featurise(context) {
  return Float32Array.from(features64(context), (value) => half(value)[1]);
}

export function featuresHash(features) {
  const bytes = Buffer.alloc(2 * features.length);
  features.forEach((value, place) => bytes.writeUInt16LE(half(value)[0], 2 * place));
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}

// The policy in a folder, after hashes, feature rules and golden vectors are checked. Throws if any of them fails.
export async function load(folder, draw = () => randomInt(2 ** 48 - 1) / (2 ** 48 - 1)) {
  const manifest = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  if (manifest.schema !== RULES.schema) throw new Error(`manifest.json is not of schema ${RULES.schema}`);
  if (manifest.features.spec_sha256 !== RULES.spec_sha256) {
    throw new Error(`made for feature rules ${manifest.features.spec}, this file has ${RULES.spec}`);
  }
  for (const [name, expected] of Object.entries(manifest.files)) {
    const digest = createHash("sha256").update(readFileSync(join(folder, name))).digest("hex");
    if (`sha256:${digest}` !== expected) throw new Error(`${name} is not the file the manifest was written for`);
  }
  const session = await ort.InferenceSession.create(join(folder, "policy.onnx"));

  async function probabilities(features, allowed) {
    const names = manifest.actions;
    const may = Uint8Array.from(names, (name) => (allowed === undefined || allowed.includes(name) ? 1 : 0));
    const found = await session.run({
      features: new ort.Tensor("float32", features, [1, features.length]),
      allowed: new ort.Tensor("bool", may, [1, names.length]),
    });
    return Array.from(found.probabilities.data);
  }

  async function decide(context, allowed) {
    const features = featurise(context);
    const shares = await probabilities(features, allowed);
    let place = shares.indexOf(Math.max(...shares));
    let left = draw();
    for (const [at, share] of shares.entries()) {
      if (share > 0) {
        place = at;
        if (left < share) break;
        left -= share;
      }
    }
    const action = manifest.actions[place];
    return {
      action,
      propensity: shares[place],
      candidates: manifest.actions,
      probabilities: shares,
      attributes: {
        "policy.id": manifest.policy_id,
        "policy.version": manifest.version,
        "policy.action": action,
        "policy.propensity": shares[place],
        "policy.candidates": JSON.stringify(manifest.actions),
        "policy.probabilities": JSON.stringify(shares),
        "policy.features.spec": manifest.features.spec,
        "policy.features.hash": featuresHash(features),
      },
    };
  }

  const policy = { manifest, decide, probabilities };
  policy.golden = await golden(folder, policy);
  if (policy.golden.hashes || policy.golden.features > 0 || policy.golden.probabilities > 1e-4) {
    throw new Error(`the golden vectors come out otherwise here: ${JSON.stringify(policy.golden)}`);
  }
  return policy;
}

// Largest differences to golden.json, and how many hashes of features differ.
async function golden(folder, policy) {
  const { cases } = JSON.parse(readFileSync(join(folder, "golden.json"), "utf8"));
  const worst = { cases: cases.length, hashes: 0, features: 0, probabilities: 0 };
  const gap = (got, expected) => Math.max(...expected.map((value, place) => Math.abs(value - got[place])));
  for (const one of cases) {
    const features = featurise(one.context);
    worst.hashes += featuresHash(features) === one.features_hash ? 0 : 1;
    worst.features = Math.max(worst.features, gap(features, one.features));
    const shares = await policy.probabilities(features, one.allowed);
    worst.probabilities = Math.max(worst.probabilities, gap(shares, one.probabilities));
  }
  return worst;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(JSON.stringify((await load(process.argv[2] ?? "policy")).golden));
}
