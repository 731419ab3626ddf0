-- dormouse on PostgreSQL, format 1. PostgreSQL 14 or newer.
--
-- The at sign stands for the name of the schema: one schema is one store. Every statement names the schema, because a pooler in transaction
-- mode keeps no setting of a session, such as a search path.
--
-- * Records are json, not jsonb: json preserves all bytes, including the order of keys, \u0000 and the final newline.
-- * There are no foreign keys: one from the inbox would lock a shared row for every arrival.
-- * Times are milliseconds since 1970. Those of leases, uses, inputs, watchers and anchors are by the server's clock, others by a client's.

CREATE SCHEMA IF NOT EXISTS @;

CREATE TABLE @.meta (                 -- format and id of the store
  key text PRIMARY KEY, value text NOT NULL);

CREATE TABLE @.agent (                -- rarely updated
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  identity json NOT NULL,
  policy text NOT NULL,               -- text of agent.toml
  is_shut boolean NOT NULL DEFAULT false,         -- the agent was moved away, so its inbox is closed
  pool text NOT NULL DEFAULT '',      -- only machines that serve this pool tick the agent
  room text,                          -- name of the local agent directory on the machine that created the agent
  takes bigint);                      -- maximum size of a message; -1: the sender's default; NULL: unknown, so the sender reads the settings

CREATE TABLE @.state (                -- updated by every change; only the primary key is indexed, so updates touch no index
  agent_id bigint PRIMARY KEY,
  revision bigint NOT NULL,
  fence bigint NOT NULL DEFAULT 0,    -- last fence; each new lease increments it, and it never decreases
  body json NOT NULL)
  WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE @.due (                  -- only agents that have work at a known time
  agent_id bigint PRIMARY KEY,
  pool text NOT NULL DEFAULT '',
  due_at bigint NOT NULL)
  WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX due_next ON @.due (pool, due_at);

CREATE TABLE @.inbox (                -- arrivals, in processing order; hints have priority -1
  agent_id bigint NOT NULL,
  prio smallint NOT NULL,
  id uuid NOT NULL,
  fresh boolean NOT NULL DEFAULT true,            -- always true: no statement updates it
  by name,                            -- role of the producer that inserted it; NULL if a ticker inserted it
  body json NOT NULL,
  PRIMARY KEY (agent_id, prio, id))
  WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX inbox_fresh ON @.inbox (agent_id) WHERE fresh;

CREATE TABLE @.record (               -- open records
  agent_id bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  body json NOT NULL,
  PRIMARY KEY (agent_id, kind, id))
  WITH (fillfactor = 80);

CREATE TABLE @.plan (                 -- plans of open work items, as bytes because they may contain NUL
  agent_id bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (agent_id, id));

CREATE TABLE @.file (                 -- files that an import has brought, so that an export has the same ones
  agent_id bigint NOT NULL,
  path text COLLATE "C" NOT NULL,     -- relative to the directory of the agent
  written_at bigint NOT NULL,         -- in seconds, as in the headers of a stream
  digest text NOT NULL,               -- SHA-256 of the bytes
  PRIMARY KEY (agent_id, path));

CREATE TABLE @.dedupe (
  agent_id bigint NOT NULL,
  key_sha bytea NOT NULL,             -- SHA-256, because a key may be too long for an index
  revision bigint NOT NULL,
  admitted_at bigint NOT NULL,
  body json NOT NULL,
  PRIMARY KEY (agent_id, key_sha));
CREATE INDEX dedupe_old ON @.dedupe (agent_id, admitted_at);

CREATE TABLE @.lease (                -- one row for each leased run or task
  agent_id bigint NOT NULL,
  subject text COLLATE "C" NOT NULL,  -- `run`, or the id of a task
  fence bigint NOT NULL,
  anchor text NOT NULL,
  host text NOT NULL,
  pid bigint NOT NULL,
  expires_at bigint NOT NULL,         -- by the server's clock; not indexed, so that heartbeats update no index
  has_slot boolean NOT NULL DEFAULT false,        -- the turn counts toward the limit of concurrent turns
  PRIMARY KEY (agent_id, subject))
  WITH (fillfactor = 30, autovacuum_vacuum_threshold = 200);

CREATE TABLE @.fence_floor (          -- one row: highest fence of removed agents, at which new agents begin
  fence bigint NOT NULL);
INSERT INTO @.fence_floor VALUES (0);

CREATE TABLE @.archive (              -- ended records, one line each
  agent_id bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  at bigint NOT NULL,
  revision bigint NOT NULL,           -- of the change that wrote the line; readers of an older revision skip the line
  id text COLLATE "C",
  body json NOT NULL,
  PRIMARY KEY (agent_id, kind, seq, at)) PARTITION BY RANGE (at);
CREATE INDEX archive_id ON @.archive (agent_id, id);
CREATE TABLE @.archive_default PARTITION OF @.archive DEFAULT;

CREATE TABLE @.event (
  agent_id bigint NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,        -- order of the lines, because `number` may occur twice
  number bigint NOT NULL,             -- number of the event
  at bigint NOT NULL,
  revision bigint NOT NULL,
  body json NOT NULL,
  PRIMARY KEY (agent_id, seq, at)) PARTITION BY RANGE (at);
CREATE TABLE @.event_default PARTITION OF @.event DEFAULT;

CREATE TABLE @.blob (                 -- parts of checkpoints
  agent_id bigint NOT NULL, subject text COLLATE "C" NOT NULL, name text NOT NULL, part int NOT NULL,
  bytes bytea NOT NULL CHECK (length(bytes) <= 1048576),
  PRIMARY KEY (agent_id, subject, name, part));

CREATE TABLE @.trigger_key (          -- keys of signatures; readers may select all columns but the key
  agent_id bigint NOT NULL,
  trigger_id text COLLATE "C" NOT NULL,
  sha text NOT NULL,                  -- SHA-256 of the key, which is also in the trigger's record
  key bytea NOT NULL,
  PRIMARY KEY (agent_id, trigger_id));

CREATE TABLE @.trigger_use (          -- number of uses of a trigger in the minute after `since`
  agent_id bigint NOT NULL,
  trigger_id text COLLATE "C" NOT NULL,
  since bigint NOT NULL,              -- by the server's clock
  times bigint NOT NULL,
  PRIMARY KEY (agent_id, trigger_id))
  WITH (fillfactor = 30, autovacuum_vacuum_threshold = 200);

CREATE TABLE @.task_input (           -- input for the command of a task on another machine, in parts, until it is delivered
  agent_id bigint NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  words uuid NOT NULL,                -- id of the input that the part belongs to
  at bigint NOT NULL,                 -- by the server's clock
  is_taken boolean NOT NULL DEFAULT false,        -- the supervisor has read the part
  is_refused boolean NOT NULL DEFAULT false,      -- the part will not be delivered
  bytes bytea NOT NULL CHECK (length(bytes) <= 16384),
  PRIMARY KEY (agent_id, task_id, seq));

CREATE TABLE @.watcher (              -- waiting processes, whose channels changes notify
  agent_id bigint NOT NULL, channel text NOT NULL, until bigint NOT NULL,
  PRIMARY KEY (agent_id, channel));

CREATE TABLE @.anchor (               -- ticking machines, for reports
  id text PRIMARY KEY, host text NOT NULL, pools text[] NOT NULL, version text NOT NULL, seen_at bigint NOT NULL);

-- Inserts messages and hints into an inbox, with the caller's role as their producer. A producer can't read tables, so it calls this.
--
-- `again`: retry after a lost answer, which skips messages that were inserted before and have ended since. Returns `arrived`, `shut` or
-- `gone`. Refuses messages that interject, and records above the maximum size.
CREATE FUNCTION @.deliver(agent text, prios smallint[], ids uuid[], bodies text[], again boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $deliver$
DECLARE one bigint;
BEGIN
  IF EXISTS (SELECT FROM unnest(prios) p WHERE p NOT IN (-1, 1, 2, 3)) THEN
    RAISE insufficient_privilege USING MESSAGE = 'a producer can''t interject';
  END IF;
  IF EXISTS (SELECT FROM unnest(bodies) b WHERE octet_length(b) > 8388608) THEN
    RAISE program_limit_exceeded USING MESSAGE = 'a record has at most 8 MiB';
  END IF;
  SELECT a.id INTO one FROM @.agent a WHERE a.name = deliver.agent;
  IF again THEN
    PERFORM FROM @.state s WHERE s.agent_id = one FOR UPDATE;
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('@', one));
  INSERT INTO @.inbox (agent_id, prio, id, by, body)
    SELECT a.id, v.prio, v.id, session_user, v.body::json
    FROM @.agent a, unnest(prios, ids, bodies) v (prio, id, body)
    WHERE a.id = one AND NOT a.is_shut AND NOT (again AND EXISTS (SELECT FROM @.archive e
      WHERE e.agent_id = one AND e.id = 'msg_' || replace(v.id::text, '-', '')))
    ON CONFLICT DO NOTHING;
  RETURN coalesce((SELECT CASE WHEN a.is_shut THEN 'shut' ELSE 'arrived' END FROM @.agent a WHERE a.id = one), 'gone');
END $deliver$;
REVOKE ALL ON FUNCTION @.deliver FROM PUBLIC;

-- Creates the missing partitions of archive and events for this month and the next `ahead` months. Ticking machines call it, so few
-- partitions are created early: each one makes planning slower. Rows outside of all partitions go to the default partition.
-- A month that already has rows there gets no partition.
CREATE FUNCTION @.make_months(ahead int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $make_months$
DECLARE month timestamp; part text; parted text;
BEGIN
  FOR later IN 0 .. least(ahead, 24) LOOP
    month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => later);
    FOREACH parted IN ARRAY ARRAY['archive', 'event'] LOOP
      part := '@.' || parted || to_char(month, '_YYYY_MM');
      CONTINUE WHEN to_regclass(part) IS NOT NULL;
      BEGIN
        EXECUTE format('CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (%s) TO (%s)', part, '@.' || parted,
          (extract(epoch FROM month) * 1000)::bigint, (extract(epoch FROM month + interval '1 month') * 1000)::bigint);
      EXCEPTION WHEN check_violation OR lock_not_available OR deadlock_detected OR duplicate_table THEN NULL;
      END;
    END LOOP;
  END LOOP;
END $make_months$;
REVOKE ALL ON FUNCTION @.make_months FROM PUBLIC;

INSERT INTO @.meta VALUES ('format', '1'), ('store', gen_random_uuid()::text);
