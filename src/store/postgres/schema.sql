-- dormouse on PostgreSQL, format 1. PostgreSQL 14 or newer.
--
-- The sign before a dot stands for the name of the schema: one schema is one store. Every statement names it, so that nothing depends on a
-- setting of the session, which a pooler of transactions does not keep.
--
-- * Records are json, not jsonb: json keeps the bytes as they are, key order, \u0000 and the newline at the end with them.
-- * No foreign key: one from the inbox would lock a shared row for every arrival.
-- * Moments are milliseconds since 1970, as records have them. Only a lease's end is by the server's clock.

CREATE SCHEMA IF NOT EXISTS @;

CREATE TABLE @.meta (                 -- the format, the store's id
  key text PRIMARY KEY, value text NOT NULL);

CREATE TABLE @.agent (                -- changed by people
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  identity json NOT NULL,
  policy text NOT NULL,               -- agent.toml as it is written
  is_shut boolean NOT NULL DEFAULT false,         -- it was moved away: nothing arrives any more
  pool text NOT NULL DEFAULT '',      -- which machines may tick it
  room text,                          -- what the machine that made it calls the room that it has prepared for it
  takes bigint);                      -- how large a message may be; -1: as by default; NULL: the settings have to be read

CREATE TABLE @.state (                -- hot: a change updates one row, and no index but the key has to follow
  agent_id bigint PRIMARY KEY,
  revision bigint NOT NULL,
  fence bigint NOT NULL DEFAULT 0,    -- one more whenever a lease is given; it never goes down
  body json NOT NULL)
  WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE @.due (                  -- only agents that have something to do by themselves
  agent_id bigint PRIMARY KEY,
  pool text NOT NULL DEFAULT '',
  due_at bigint NOT NULL)
  WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX due_next ON @.due (pool, due_at);

CREATE TABLE @.inbox (                -- arrivals, in processing order; a hint has priority -1
  agent_id bigint NOT NULL,
  prio smallint NOT NULL,
  id uuid NOT NULL,
  fresh boolean NOT NULL DEFAULT true,            -- no step has seen it
  by name,                            -- the producer in whose name it speaks; else who put it there may do everything
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

CREATE TABLE @.plan (                 -- of open work items; any text, so bytes
  agent_id bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (agent_id, id));

CREATE TABLE @.file (                 -- files that an import has brought: a stream has them as they were
  agent_id bigint NOT NULL,
  path text COLLATE "C" NOT NULL,     -- from the directory of the agent
  written_at bigint NOT NULL,         -- in seconds, as the headers of a stream have it
  digest text NOT NULL,               -- SHA-256 of the bytes
  PRIMARY KEY (agent_id, path));

CREATE TABLE @.dedupe (
  agent_id bigint NOT NULL,
  key_sha bytea NOT NULL,             -- a key may be longer than an index takes
  revision bigint NOT NULL,
  admitted_at bigint NOT NULL,
  body json NOT NULL,
  PRIMARY KEY (agent_id, key_sha));
CREATE INDEX dedupe_old ON @.dedupe (agent_id, admitted_at);

CREATE TABLE @.lease (                -- a row per living turn or task
  agent_id bigint NOT NULL,
  subject text COLLATE "C" NOT NULL,  -- `run`, or the id of a task
  fence bigint NOT NULL,
  anchor text NOT NULL,
  host text NOT NULL,
  pid bigint NOT NULL,
  expires_at bigint NOT NULL,         -- by the server's clock; in no index, so that a beat touches none
  has_slot boolean NOT NULL DEFAULT false,        -- of a turn that counts among those that may run at once
  PRIMARY KEY (agent_id, subject))
  WITH (fillfactor = 30, autovacuum_vacuum_threshold = 200);

CREATE TABLE @.fence_floor (          -- one row: new agents begin with this fence, so that none comes again that a former one had
  fence bigint NOT NULL);
INSERT INTO @.fence_floor VALUES (0);

CREATE TABLE @.archive (              -- what has ended, a line each
  agent_id bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  at bigint NOT NULL,
  revision bigint NOT NULL,           -- of the change that wrote the line: whoever reads an older one passes over it
  id text COLLATE "C",
  body json NOT NULL,
  PRIMARY KEY (agent_id, kind, seq, at)) PARTITION BY RANGE (at);
CREATE INDEX archive_id ON @.archive (agent_id, id);
CREATE TABLE @.archive_default PARTITION OF @.archive DEFAULT;

CREATE TABLE @.event (
  agent_id bigint NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,        -- in the order of the lines, which may have one number twice
  number bigint NOT NULL,             -- the event's own
  at bigint NOT NULL,
  revision bigint NOT NULL,
  body json NOT NULL,
  PRIMARY KEY (agent_id, seq, at)) PARTITION BY RANGE (at);
CREATE TABLE @.event_default PARTITION OF @.event DEFAULT;

CREATE TABLE @.blob (                 -- parts of checkpoints
  agent_id bigint NOT NULL, subject text COLLATE "C" NOT NULL, name text NOT NULL, part int NOT NULL,
  bytes bytea NOT NULL CHECK (length(bytes) <= 1048576),
  PRIMARY KEY (agent_id, subject, name, part));

CREATE TABLE @.trigger_key (          -- of signatures; who only reads may see which there are, and not the keys
  agent_id bigint NOT NULL,
  trigger_id text COLLATE "C" NOT NULL,
  sha text NOT NULL,                  -- SHA-256, which the record of the trigger names, too
  key bytea NOT NULL,
  PRIMARY KEY (agent_id, trigger_id));

CREATE TABLE @.trigger_use (          -- how often a trigger was used in the minute from `since` on
  agent_id bigint NOT NULL,
  trigger_id text COLLATE "C" NOT NULL,
  since bigint NOT NULL,              -- by the server's clock
  times bigint NOT NULL,
  PRIMARY KEY (agent_id, trigger_id))
  WITH (fillfactor = 30, autovacuum_vacuum_threshold = 200);

CREATE TABLE @.task_input (           -- what is said to the command of a task on another machine, in parts, until that has it
  agent_id bigint NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  words uuid NOT NULL,                -- what was said in one go
  at bigint NOT NULL,                 -- by the server's clock
  is_taken boolean NOT NULL DEFAULT false,        -- the supervisor has it
  is_refused boolean NOT NULL DEFAULT false,      -- nobody takes it any more
  bytes bytea NOT NULL CHECK (length(bytes) <= 16384),
  PRIMARY KEY (agent_id, task_id, seq));

CREATE TABLE @.watcher (              -- processes that wait: only they are sent words
  agent_id bigint NOT NULL, channel text NOT NULL, until bigint NOT NULL,
  PRIMARY KEY (agent_id, channel));

CREATE TABLE @.anchor (               -- machines that tick, for people
  id text PRIMARY KEY, host text NOT NULL, pools text[] NOT NULL, version text NOT NULL, seen_at bigint NOT NULL);

-- What a producer may do, who reads nothing: put messages and hints into an inbox, each in its own name.
--
-- `again`: after an answer that was lost. What was put there before may have ended since, and does not come again. Gives back
-- `arrived`, `shut` or `gone`. A producer may neither interject nor fill a record with more than one may have.
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

-- Parts of the archive and the events for this month and some that follow, where they have none. Machines that tick call it, so
-- that there are few parts without rows: each part makes a plan longer. What lies outside of all parts goes to the default one.
-- A month of which something lies there already stays there.
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
