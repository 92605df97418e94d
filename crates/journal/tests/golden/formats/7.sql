-- A state directory of journal format 7, as version 412fbb5c of the journal wrote it.

CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE boot(epoch INTEGER PRIMARY KEY, at INTEGER NOT NULL, clean INTEGER NOT NULL);
CREATE TABLE run(
seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, method TEXT NOT NULL,
fingerprint TEXT NOT NULL, skey TEXT NOT NULL, accepted_at INTEGER NOT NULL, st TEXT NOT NULL,
attempts INTEGER NOT NULL DEFAULT 0, absorbed_by TEXT, session_id TEXT, input_entry TEXT, aborted TEXT,
asked TEXT, ended TEXT, ended_at INTEGER);
CREATE INDEX run_absorbed ON run(absorbed_by) WHERE absorbed_by IS NOT NULL;
CREATE TABLE tool(
run_id TEXT NOT NULL, n INTEGER NOT NULL, call_id TEXT NOT NULL, class TEXT NOT NULL, result TEXT,
PRIMARY KEY(run_id, n)) WITHOUT ROWID;
CREATE TABLE sess(id INTEGER PRIMARY KEY, skey TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE strange(agent TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(agent, name)) WITHOUT ROWID;
CREATE TABLE file(
agent TEXT NOT NULL, session_id TEXT NOT NULL, name TEXT NOT NULL, len INTEGER NOT NULL, leaf TEXT,
PRIMARY KEY(agent, session_id)) WITHOUT ROWID;
CREATE TABLE redo(
seq INTEGER PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL, session_id TEXT, off INTEGER NOT NULL,
leaf TEXT, line BLOB NOT NULL);
CREATE TABLE moving(agent TEXT NOT NULL, name TEXT NOT NULL, target TEXT NOT NULL, PRIMARY KEY(agent, target)) WITHOUT ROWID;
ALTER TABLE run ADD COLUMN origin TEXT;
ALTER TABLE run ADD COLUMN started_at INTEGER;
UPDATE run SET started_at = ended ->> 'started_at' WHERE st = 'ended';
CREATE UNIQUE INDEX run_origin ON run(origin) WHERE origin IS NOT NULL;
CREATE TABLE outbox(
seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, target TEXT NOT NULL, delivery TEXT NOT NULL,
state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, is_sent INTEGER NOT NULL DEFAULT 0, final_at INTEGER);
CREATE INDEX outbox_undelivered ON outbox(target) WHERE is_sent = 0;
CREATE INDEX outbox_final ON outbox(final_at) WHERE final_at IS NOT NULL;
ALTER TABLE redo ADD COLUMN skey TEXT;
ALTER TABLE run ADD COLUMN end_no INTEGER;
CREATE TABLE spend(
day INTEGER NOT NULL, skey TEXT NOT NULL, session_id TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
runs INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
cache_write INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_input REAL NOT NULL, cost_output REAL NOT NULL,
cost_read REAL NOT NULL, cost_write REAL NOT NULL, cost REAL NOT NULL,
PRIMARY KEY(day, skey, session_id, provider, model)) WITHOUT ROWID;
CREATE INDEX spend_session ON spend(session_id);
CREATE INDEX outbox_run ON outbox(delivery ->> 'run');
ALTER TABLE run ADD COLUMN taken_up TEXT;
ALTER TABLE run ADD COLUMN epochs TEXT;
ALTER TABLE run ADD COLUMN hold TEXT;
CREATE TABLE run_summary(
seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL, skey TEXT NOT NULL, status TEXT NOT NULL, model TEXT NOT NULL,
error TEXT);

INSERT INTO meta(name, value) VALUES ('first_open', '1');
INSERT INTO boot(epoch, at, clean) VALUES (1, 1794709955355, 1);
INSERT INTO boot(epoch, at, clean) VALUES (2, 1794709957355, 0);
INSERT INTO sess(id, skey, session_id, record) VALUES (1, 'agent:main:main', 's1', '{"sessionId":"s1","updatedAt":1794709959355}');
INSERT INTO run(seq, run_id, principal, method, fingerprint, skey, accepted_at, st, attempts, session_id, input_entry, ended, ended_at, started_at, end_no, epochs) VALUES (1, 'r1', 'owner', 'agent', 'f', 'agent:main:main', 1794709957855, 'ended', 1, 's1', 'u1', '{"outcome":"done","replies":["a1"],"model":["homard","demo"],"usage":{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"totalTokens":15,"cost":{"input":0.0,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.0}},"steps":[],"ended_at":1794709959355}', 1794709959355, 1794709958355, 1, '2');
INSERT INTO run(seq, run_id, principal, method, fingerprint, skey, accepted_at, st, attempts, session_id, input_entry, asked, started_at, epochs) VALUES (2, 'r2', 'owner', 'agent', 'f', 'agent:main:main', 1794709957855, 'running', 1, 's1', 'u2', '{"message":{"role":"user","content":"hi","timestamp":1794709960355},"options":{"lane":"","timeout":null,"extraPrompt":"be brief","onRestart":"resume"}}', 1794709959455, '2');
INSERT INTO run(seq, run_id, principal, method, fingerprint, skey, accepted_at, st, asked, origin) VALUES (3, 'r3', 'owner', 'agent', 'f', 'agent:main:main', 1794709957855, 'accepted', '{"message":{"role":"user","content":"hi","timestamp":1794709960355},"options":{"lane":"","timeout":null,"extraPrompt":"be brief","onRestart":"resume"}}', '{"channel":"telegram","account":"default","event":"7"}');
INSERT INTO tool(run_id, n, call_id, class) VALUES ('r2', 0, 'c1', '"effect"');
INSERT INTO outbox(seq, id, target, delivery, state) VALUES (1, 'd1', '{"channel":"telegram","account":"default","to":"7"}', '{"id":"d1","run":"r1","target":{"channel":"telegram","account":"default","to":"7"},"part":0,"key":"k1","is_idempotent":false,"payload":{"text":"hello"},"at":1794709959355}', '"queued"');
INSERT INTO spend(day, skey, session_id, provider, model, runs, input, output, cache_read, cache_write, tokens, cost_input, cost_output, cost_read, cost_write, cost) VALUES (20770, 'agent:main:main', 's0', 'homard', 'demo', 3, 30, 15, 0, 0, 45, 0.0, 0.0, 0.0, 0.0, 0.0);
INSERT INTO redo(seq, agent, name, session_id, off, leaf, line) VALUES (1, 'main', 's1.jsonl', 's1', 641, 'u2', CAST('{"type":"message","id":"u2","parentId":"a1","timestamp":"2026-11-15T02:32:39.000Z","message":{"role":"user","content":"hi","timestamp":1794709959000}}
' AS BLOB));
INSERT INTO file(agent, session_id, name, len, leaf) VALUES ('main', 's1', 's1.jsonl', 641, 'a1');
PRAGMA user_version = 7;
