-- Written by OpenClaw 2026.9.6; other tables, triggers and long texts are left out.
PRAGMA user_version = 23;
CREATE TABLE session_nodes (
  session_key TEXT NOT NULL PRIMARY KEY,
  current_session_id TEXT NOT NULL,
  entry_json TEXT NOT NULL,
  legacy_acp_migration_json TEXT,
  entry_valid INTEGER NOT NULL DEFAULT 0 CHECK (entry_valid IN (-1, 0, 1)),
  updated_at INTEGER NOT NULL,
  status TEXT CHECK (status IS NULL OR status IN ('running', 'done', 'failed', 'killed', 'timeout')),
  created_at INTEGER,
  created_via TEXT CHECK (created_via IS NULL OR created_via IN ('operator', 'spawn', 'channel', 'cron', 'talk', 'run', 'plugin', 'internal')),
  created_actor_type TEXT CHECK (created_actor_type IS NULL OR created_actor_type IN ('human', 'agent', 'system')),
  created_actor_id TEXT,
  owner_actor_type TEXT,
  owner_actor_id TEXT,
  owner_assigned_by_type TEXT,
  owner_assigned_by_id TEXT,
  owner_assigned_at INTEGER,
  project_id TEXT,
  parent_session_key TEXT,
  spawned_by TEXT,
  fork_source_session_key TEXT,
  fork_source_session_id TEXT,
  fork_source_entry_id TEXT,
  label TEXT,
  display_name TEXT,
  category TEXT,
  icon TEXT,
  pinned_at INTEGER,
  archived_at INTEGER,
  last_read_at INTEGER,
  last_interaction_at INTEGER,
  last_activity_at INTEGER
) STRICT;
INSERT INTO session_nodes VALUES('agent:main:main','fa5faeac-9462-4b16-abb2-735043edc6d7','{"sessionId":"fa5faeac-9462-4b16-abb2-735043edc6d7","updatedAt":1795104886076,"sessionStartedAt":1795104798149,"delivery":{"kind":"none"},"lastInteractionAt":1795104886075,"activeWriterRunId":"bd26794b-48f7-4d41-ba13-2adf1f33e35b","model":"fake-1","modelProvider":"fake","abortedLastRun":false,"lastActivityAt":1795104886075,"contextTokens":64000,"contextTokensSource":"resolved","agentHarnessId":"openclaw","contextBudgetStatus":{"schemaVersion":1,"source":"pre-prompt-estimate","updatedAt":1795104885907,"provider":"fake","model":"fake-1","route":"fits","shouldCompact":false,"estimatedPromptTokens":17361,"contextTokenBudget":64000,"promptBudgetBeforeReserve":48000,"reserveTokens":16000,"effectiveReserveTokens":16000,"remainingPromptBudgetTokens":30639,"overflowTokens":0,"toolResultReducibleChars":0,"messageCount":2,"unwindowedMessageCount":2,"sessionId":"fa5faeac-9462-4b16-abb2-735043edc6d7"},"inputTokens":5,"outputTokens":3,"cacheRead":0,"cacheWrite":0,"totalTokens":5,"totalTokensFresh":true,"totalTokensVersion":1}',NULL,1,1795104886076,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795104886075,1795104886075);
INSERT INTO session_nodes VALUES('agent:main:notes','cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085','{"sessionId":"cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085","updatedAt":1795104901452,"sessionStartedAt":1795104894756,"delivery":{"kind":"none"},"lastInteractionAt":1795104901451,"activeWriterRunId":"cf8d0ef4-c73f-4bf0-97a8-b79922b63066","model":"fake-1","modelProvider":"fake","abortedLastRun":false,"lastActivityAt":1795104901451,"contextTokens":64000,"contextTokensSource":"resolved","agentHarnessId":"openclaw","contextBudgetStatus":{"schemaVersion":1,"source":"pre-prompt-estimate","updatedAt":1795104901309,"provider":"fake","model":"fake-1","route":"fits","shouldCompact":false,"estimatedPromptTokens":30659,"contextTokenBudget":64000,"promptBudgetBeforeReserve":48000,"reserveTokens":16000,"effectiveReserveTokens":16000,"remainingPromptBudgetTokens":17341,"overflowTokens":0,"toolResultReducibleChars":0,"messageCount":0,"unwindowedMessageCount":0,"sessionId":"cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085"},"inputTokens":5,"outputTokens":3,"cacheRead":0,"cacheWrite":0,"totalTokens":5,"totalTokensFresh":true,"totalTokensVersion":1}',NULL,1,1795104901452,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795104901451,1795104901451);
CREATE TABLE session_windows (
  session_id TEXT NOT NULL PRIMARY KEY,
  session_key TEXT NOT NULL,
  previous_session_id TEXT,
  reason TEXT CHECK (reason IS NULL OR reason IN ('initial', 'reset', 'rollover', 'fork', 'rewind', 'switch', 'recovery', 'compaction')),
  session_scope TEXT NOT NULL DEFAULT 'conversation' CHECK (session_scope IN ('conversation', 'shared-main', 'group', 'channel')),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  transcript_updated_at INTEGER DEFAULT NULL,
  transcript_observed_at INTEGER DEFAULT NULL,
  session_entry_provenance INTEGER NOT NULL DEFAULT 0 CHECK (session_entry_provenance IN (0, 1)),
  acp_owned INTEGER NOT NULL DEFAULT 0 CHECK (acp_owned IN (0, 1)),
  plugin_owner_id TEXT,
  hook_external_content_source TEXT CHECK (hook_external_content_source IS NULL OR hook_external_content_source IN ('gmail', 'webhook')),
  started_at INTEGER,
  ended_at INTEGER,
  status TEXT CHECK (status IS NULL OR status IN ('running', 'done', 'failed', 'killed', 'timeout')),
  chat_type TEXT CHECK (chat_type IS NULL OR chat_type IN ('direct', 'group', 'channel')),
  channel TEXT,
  account_id TEXT,
  primary_conversation_id TEXT,
  model_provider TEXT,
  model TEXT,
  agent_harness_id TEXT,
  parent_session_key TEXT,
  spawned_by TEXT,
  display_name TEXT,
  FOREIGN KEY (session_key) REFERENCES session_nodes(session_key) ON DELETE CASCADE,
  FOREIGN KEY (primary_conversation_id) REFERENCES conversations(conversation_id) ON DELETE SET NULL
) STRICT;
INSERT INTO session_windows VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7','agent:main:main',NULL,NULL,'conversation',1795104798149,1795104886076,1795104886050,1795104886050,1,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'fake','fake-1','openclaw',NULL,NULL,NULL);
INSERT INTO session_windows VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085','agent:main:notes',NULL,NULL,'conversation',1795104894756,1795104901452,1795104901420,1795104901420,1,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'fake','fake-1','openclaw',NULL,NULL,NULL);
CREATE TABLE transcript_events (
  session_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  event_json TEXT,
  created_at INTEGER NOT NULL,
  event_zstd BLOB,
  event_utf8_bytes INTEGER CHECK (event_utf8_bytes IS NULL OR event_utf8_bytes >= 0),
  navigation_json TEXT,
  PRIMARY KEY (session_id, seq),
  FOREIGN KEY (session_id) REFERENCES "session_windows"(session_id) ON DELETE CASCADE,
  CHECK (
    (event_json IS NOT NULL AND event_zstd IS NULL)
    OR (
      event_json IS NULL AND event_zstd IS NOT NULL
      AND event_utf8_bytes IS NOT NULL
      AND event_utf8_bytes BETWEEN 1 AND 4194304
      AND length(event_zstd) BETWEEN 1 AND 4194304
      AND navigation_json IS NOT NULL
    )
  ),
  CHECK (
    navigation_json IS NULL OR CASE WHEN json_valid(navigation_json) THEN coalesce(
      octet_length(navigation_json) <= 16384
      AND json_type(navigation_json, '$.version') = 'integer'
      AND json_extract(navigation_json, '$.version') = 1
      AND json_type(navigation_json, '$.report') = 'object'
      AND json_extract(navigation_json, '$.report.kind') IN ('canonical', 'leaf', 'link', 'ignored')
      AND json_type(navigation_json, '$.navigation') = 'object'
      AND json_type(navigation_json, '$.reset') = 'object'
      AND json_type(navigation_json, '$.model') = 'object'
      AND json_type(navigation_json, '$.modelBytes') = 'integer'
      AND json_extract(navigation_json, '$.modelBytes') BETWEEN 0 AND 4194304
      AND json_type(navigation_json, '$.modelWithoutCheckpointBytes') = 'integer'
      AND json_extract(navigation_json, '$.modelWithoutCheckpointBytes') BETWEEN 0 AND 4194304
      AND json_type(navigation_json, '$.withoutCustomDataBytes') = 'integer'
      AND json_extract(navigation_json, '$.withoutCustomDataBytes') BETWEEN 0 AND 4194304,
      0) ELSE 0 END
  )
) STRICT;
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',0,'{"type":"session","version":4,"id":"fa5faeac-9462-4b16-abb2-735043edc6d7","timestamp":"2026-11-19T16:13:23.456Z","cwd":"/home/me/.openclaw/workspace"}',1795104803456,NULL,155,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',1,'{"type":"model_change","provider":"fake","modelId":"fake-1","id":"94968012-beb5-4074-a800-7c24864914f5","parentId":null,"timestamp":"2026-11-19T16:13:23.474Z"}',1795104803474,NULL,159,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',2,'{"type":"thinking_level_change","thinkingLevel":"off","id":"c5ff958d-d042-4aa9-b116-7f99614b5163","parentId":"94968012-beb5-4074-a800-7c24864914f5","timestamp":"2026-11-19T16:13:23.960Z"}',1795104803960,NULL,187,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',3,'{"type":"custom","customType":"model-snapshot","data":{"timestamp":1795104803988,"provider":"fake","modelApi":"openai-completions","modelId":"fake-1"},"id":"67d2970c-4088-4b8e-b659-1473f07d8a5d","parentId":"c5ff958d-d042-4aa9-b116-7f99614b5163","timestamp":"2026-11-19T16:13:23.990Z"}',1795104803990,NULL,284,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',4,'{"type":"message","id":"493aff86-b553-4f8a-8da9-58e8f74f3c3b","parentId":"67d2970c-4088-4b8e-b659-1473f07d8a5d","timestamp":"2026-11-19T16:13:24.035Z","message":{"role":"user","content":"Hello from the test","timestamp":1795104798367,"__openclaw":{"senderIsOwner":true},"idempotencyKey":"a2ef3b0f-1d28-4a98-8232-7ed0275d03e6:user"}}',1795104804035,NULL,332,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',5,'{"type":"message","id":"eef26fe6-152a-41f0-b5e5-19b37fffe7ef","parentId":"493aff86-b553-4f8a-8da9-58e8f74f3c3b","timestamp":"2026-11-19T16:13:24.157Z","message":{"role":"assistant","content":[{"type":"text","text":"You said: ve Subagents\\\\nnone\"\\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>''}]"}],"api":"openai-completions","provider":"fake","model":"fake-1","usage":{"input":5,"output":3,"cacheRead":0,"cacheWrite":0,"totalTokens":8,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":1795104804046,"responseId":"c1","__openclaw":{"runId":"f418ef9f-c3ef-4f5b-a531-64b0359ef30b"}}}',1795104804157,NULL,627,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',6,'{"type":"custom","customType":"openclaw:bootstrap-context:full","data":{"timestamp":1795104804199,"runId":"f418ef9f-c3ef-4f5b-a531-64b0359ef30b","sessionId":"fa5faeac-9462-4b16-abb2-735043edc6d7"},"id":"54ee34a1-7db4-46fa-9441-670f747ec183","parentId":"eef26fe6-152a-41f0-b5e5-19b37fffe7ef","timestamp":"2026-11-19T16:13:24.199Z"}',1795104804199,NULL,330,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',7,'{"type":"message","id":"06e7914f-b19b-4156-a4f3-c51d23cd601b","parentId":"54ee34a1-7db4-46fa-9441-670f747ec183","timestamp":"2026-11-19T16:14:45.912Z","message":{"role":"user","content":"Use a tool: TOOL","timestamp":1795104879386,"__openclaw":{"senderIsOwner":true},"idempotencyKey":"7783f856-22a8-40cf-80e9-802c63af70e1:user"}}',1795104885912,NULL,329,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',8,'{"type":"message","id":"2639df8a-0143-4f06-9661-034941f24ffb","parentId":"06e7914f-b19b-4156-a4f3-c51d23cd601b","timestamp":"2026-11-19T16:14:46.034Z","message":{"role":"assistant","content":[{"type":"text","text":"You said: ve Subagents\\\\nnone\"\\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>''}]"}],"api":"openai-completions","provider":"fake","model":"fake-1","usage":{"input":5,"output":3,"cacheRead":0,"cacheWrite":0,"totalTokens":8,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":1795104885940,"responseId":"c1","__openclaw":{"runId":"bd26794b-48f7-4d41-ba13-2adf1f33e35b"}}}',1795104886034,NULL,627,NULL);
INSERT INTO transcript_events VALUES('fa5faeac-9462-4b16-abb2-735043edc6d7',9,'{"type":"custom","customType":"openclaw:bootstrap-context:full","data":{"timestamp":1795104886049,"runId":"bd26794b-48f7-4d41-ba13-2adf1f33e35b","sessionId":"fa5faeac-9462-4b16-abb2-735043edc6d7"},"id":"70b0002b-7b18-42a2-921c-c1f722cf6f12","parentId":"2639df8a-0143-4f06-9661-034941f24ffb","timestamp":"2026-11-19T16:14:46.049Z"}',1795104886049,NULL,330,NULL);
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',0,'{"type":"session","version":4,"id":"cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085","timestamp":"2026-11-19T16:15:00.647Z","cwd":"/home/me/.openclaw/workspace"}',1795104900647,NULL,155,NULL);
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',1,'{"type":"model_change","provider":"fake","modelId":"fake-1","id":"bbcbd7e6-5d7e-4f41-9acf-4e08536132e8","parentId":null,"timestamp":"2026-11-19T16:15:00.684Z"}',1795104900684,NULL,159,NULL);
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',2,'{"type":"thinking_level_change","thinkingLevel":"off","id":"967bfba4-c48c-4f47-a6d0-45197fd605d0","parentId":"bbcbd7e6-5d7e-4f41-9acf-4e08536132e8","timestamp":"2026-11-19T16:15:01.233Z"}',1795104901233,NULL,187,NULL);
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',3,'{"type":"custom","customType":"model-snapshot","data":{"timestamp":1795104901265,"provider":"fake","modelApi":"openai-completions","modelId":"fake-1"},"id":"0778d3b2-de59-40b7-b433-621f526e7372","parentId":"967bfba4-c48c-4f47-a6d0-45197fd605d0","timestamp":"2026-11-19T16:15:01.267Z"}',1795104901267,NULL,284,NULL);
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',4,NULL,1795104901314,X'28B52FFD64E9B30D080026D33A20406758077393B7B6DF2510D51683E6E36F5666DC6EDE706DBD1ABC399761B8372F0031003200CE1D7F8F843BBBC2E7E88DDBA2E4C29416597291930459B3C44C31A945964B3AF9F7D81CBD0DD0DA76FEDE4FE25E11573C7402C60B808FD7F8213CA070624E883AD4DF1F075EDB4E738FAEDC728DA8265921692DB624B71C2C29AD6352CB8A49F68A77037860663FB45038421C3725610737C5B161FBD26974C1352435EE415FC330E9E1EF77F69D94397A6D8BF87B1F680D8BC56B5BC4930C5C8D1D4B25AB2576325930A6A556A23084FD3DD1010966F6A58FD3B1395A34A2DEF7DAD340C0126AC7D9010400911D6D6401401B7210CB998E861789F6A4A7E614EA',46313,'{"version":1,"report":{"kind":"canonical","hasParentId":true,"entry":{"id":"f7f3f1d5-c241-4e4a-81d7-4d594bf2b515","parentId":"0778d3b2-de59-40b7-b433-621f526e7372","timestamp":"2026-11-19T16:15:01.314Z","type":"message"}},"navigation":{"type":"message","id":"f7f3f1d5-c241-4e4a-81d7-4d594bf2b515","parentId":"0778d3b2-de59-40b7-b433-621f526e7372","timestamp":"2026-11-19T16:15:01.314Z","message":{"role":"user","__openclaw":{},"idempotencyKey":"46498323-da38-40b7-bf71-538230453acf:user"}},"reset":{"type":"message","id":"f7f3f1d5-c241-4e4a-81d7-4d594bf2b515","parentId":"0778d3b2-de59-40b7-b433-621f526e7372","timestamp":"2026-11-19T16:15:01.314Z","message":{"role":"user"}},"model":{"type":"message","id":"f7f3f1d5-c241-4e4a-81d7-4d594bf2b515","parentId":"0778d3b2-de59-40b7-b433-621f526e7372","timestamp":"2026-11-19T16:15:01.314Z","message":{"role":"user","timestamp":1795104895176,"content":[],"command":"","output":"","providerReplay":{"type":null},"details":{"openclawSyntheticMissingToolResult":false}}},"modelBytes":46313,"modelWithoutCheckpointBytes":46313,"withoutCustomDataBytes":46313}');
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',5,'{"type":"message","id":"300077bb-27eb-4efc-9dac-6e13fd697ae4","parentId":"f7f3f1d5-c241-4e4a-81d7-4d594bf2b515","timestamp":"2026-11-19T16:15:01.402Z","message":{"role":"assistant","content":[{"type":"text","text":"You said: ve Subagents\\\\nnone\"\\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>''}]"}],"api":"openai-completions","provider":"fake","model":"fake-1","usage":{"input":5,"output":3,"cacheRead":0,"cacheWrite":0,"totalTokens":8,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":1795104901333,"responseId":"c1","__openclaw":{"runId":"cf8d0ef4-c73f-4bf0-97a8-b79922b63066"}}}',1795104901402,NULL,627,NULL);
INSERT INTO transcript_events VALUES('cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085',6,'{"type":"custom","customType":"openclaw:bootstrap-context:full","data":{"timestamp":1795104901419,"runId":"cf8d0ef4-c73f-4bf0-97a8-b79922b63066","sessionId":"cb06a7e8-d26e-4f47-a6cd-ae6d0eee6085"},"id":"53aa0456-f4ad-495b-a360-8d5173631968","parentId":"300077bb-27eb-4efc-9dac-6e13fd697ae4","timestamp":"2026-11-19T16:15:01.419Z"}',1795104901419,NULL,330,NULL);
CREATE TABLE auth_profile_store (
  store_key TEXT NOT NULL PRIMARY KEY,
  store_json TEXT NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;
