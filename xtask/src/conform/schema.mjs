// Checks frames on record against the published schema of protocol 4. The arguments are the record and the schema.
// Every deviation that is not known is told; so is how much was checked.
import { readFileSync } from 'node:fs';
import Ajv from 'ajv';

const [record, schemaFile] = process.argv.slice(2);
const schema = JSON.parse(readFileSync(schemaFile, 'utf8'));
const ajv = new Ajv({ strict: false, allErrors: true, logger: false });
ajv.addSchema({ $id: 'protocol', definitions: schema.definitions });
const check = (name) => ajv.getSchema(`protocol#/definitions/${name}`);

const EVENTS = {
  agent: 'AgentEvent', chat: 'ChatEvent', tick: 'TickEvent', shutdown: 'ShutdownEvent', health: 'HealthSnapshot',
  'device.pair.requested': 'DevicePairRequestedEvent', 'device.pair.resolved': 'DevicePairResolvedEvent',
};
const RESULTS = { connect: 'HelloOk', 'agent.identity.get': 'AgentIdentityResult', 'cron.runs': undefined };

// What is not as the schema has it, and why that stays so. A pattern of "<definition> <place> <problem>".
const KNOWN = [
  [/^HelloOk \/auth\/method must NOT/, 'hello-ok contains the authentication method, as in 2026.9.6'],
  [/^AgentEvent \/(sessionKey|sessionId|agentId) must NOT/, 'run events contain their session and agent, as in 2026.9.6'],
  [/^ChannelsPairingListResult \/channels must NOT/, 'channels.pairing.list also contains the approved senders of each channel, which `homard pairing list` shows'],
  [/^SystemInfoResult \/(eventLoop|processMemory) must NOT/, 'system.info contains the load of the process, as in 2026.9.6, whose connection page shows it'],
  [/^SkillsProposalsListResult \/installedSkills must NOT/, 'skills.proposals.list contains the installed skills, which the page of 2026.9.6 requires'],
  [/^ConfigSchemaLookupResult (\/(protocol|principal|may) must NOT| must have required property '(schema|children)')/, 'a test of extra methods implements config.schema.lookup itself'],
  [/ .*\/(work|notice|degraded) must NOT have additional properties/, 'health contains stalled runs and warnings'],
];

function named(method) {
  if (method in RESULTS) return RESULTS[method];
  const words = method.split(/[.-]/).map((word) => word[0].toUpperCase() + word.slice(1));
  return `${words.join('')}Result`;
}

const asked = new Map();
const deviations = new Map();
const unknown = new Map();
let count = 0;
let checked = 0;

function judge(name, value, what) {
  const validate = name && schema.definitions[name] ? check(name) : undefined;
  if (!validate) {
    unknown.set(what, (unknown.get(what) ?? 0) + 1);
    return;
  }
  checked += 1;
  if (validate(value)) return;
  for (const { instancePath, message, params } of validate.errors) {
    const place = `${instancePath.replace(/\/\d+/g, '/*')}${params.additionalProperty ? `/${params.additionalProperty}` : ''}`;
    const line = `${name} ${place} ${message}`;
    // A choice fails as a whole, and in each of its parts.
    if (/must match exactly one schema|must match a schema in anyOf/.test(message)) continue;
    deviations.set(line, (deviations.get(line) ?? 0) + 1);
  }
}

for (const line of readFileSync(record, 'utf8').split('\n').filter(Boolean)) {
  const entry = JSON.parse(line);
  if (entry.protocol !== 4) continue;
  if (entry.asked) asked.set(entry.asked, entry.method);
  const frame = entry.heard;
  if (!frame) continue;
  count += 1;
  if (frame.type === 'event') {
    judge('EventFrame', frame, 'frame');
    judge(EVENTS[frame.event], frame.payload, `event ${frame.event}`);
    // The schema has the rows of this list, not the list.
    if (frame.event === 'presence') frame.payload.presence.forEach((row) => judge('PresenceEntry', row, 'row of presence'));
  } else {
    // A number for an id is echoed as it came.
    judge('ResponseFrame', { ...frame, id: String(frame.id) || 'empty' }, 'frame');
    const method = entry.method ?? asked.get(frame.id);
    if (frame.ok && method && frame.payload?.status !== 'accepted') judge(named(method), frame.payload, `answer to ${method}`);
  }
}

const news = [...deviations].filter(([line]) => !KNOWN.some(([pattern]) => pattern.test(line)));
const known = KNOWN.filter(([pattern]) => [...deviations.keys()].some((line) => pattern.test(line))).map(([, why]) => why);
console.log(JSON.stringify({ count, checked, known, unknown: [...unknown.keys()].sort(), deviations: news.map(([line, times]) => `${line} (${times})`) }));
