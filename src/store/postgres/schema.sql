-- dormouse on PostgreSQL, format 1. PostgreSQL 14 or newer.
--
-- The at sign stands for the name of the schema: one schema is one store. Every statement names the schema, because a pooler in transaction
-- mode keeps no setting of a session, such as a search path. With the word "now" the sign stands for the server's time in milliseconds.
--
-- * Records are json, not jsonb: json preserves all bytes, including the order of keys, \u0000 and the final newline.
-- * There are no foreign keys: a foreign key from the inbox would lock a shared row for every arrival.
-- * Times are milliseconds since 1970. Times of leases, uses, watchers and anchors are by the server's clock, others by a client's.

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

CREATE INDEX agent_former ON @.agent (name) WHERE strpos(identity::text, '"former_names"') > 0;

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
  by name,                            -- role of the producer that inserted it; NULL if a ticker inserted it
  body json NOT NULL,
  PRIMARY KEY (agent_id, prio, id))
  WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

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
  expires_at bigint NOT NULL,         -- time of the server's clock; not indexed, so that heartbeats update no index
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
  revision bigint NOT NULL,           -- revision that wrote the line; readers of an older revision skip the line
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
  since bigint NOT NULL,              -- time of the server's clock
  times bigint NOT NULL,
  PRIMARY KEY (agent_id, trigger_id))
  WITH (fillfactor = 30, autovacuum_vacuum_threshold = 200);

CREATE TABLE @.watcher (              -- waiting processes, whose channels changes notify
  agent_id bigint NOT NULL, channel text NOT NULL, until bigint NOT NULL,
  PRIMARY KEY (agent_id, channel));

CREATE TABLE @.anchor (               -- ticking machines, for reports
  id text PRIMARY KEY, host text NOT NULL, pools text[] NOT NULL, version text NOT NULL, seen_at bigint NOT NULL);

-- True if a process acts for no lease, or for a valid lease of the agent: subject, fence and run, or NULL.
CREATE FUNCTION @.may_act(agent bigint, subject text, fence bigint, run text) RETURNS boolean LANGUAGE plpgsql AS $may_act$
BEGIN
  RETURN may_act.subject IS NULL
    OR EXISTS (SELECT FROM @.lease l WHERE l.agent_id = agent AND l.subject = may_act.subject AND l.fence = may_act.fence)
    AND (run IS NULL OR EXISTS (SELECT FROM @.state s WHERE s.agent_id = agent AND strpos(s.body::text, run) > 0));
END $may_act$;
REVOKE ALL ON FUNCTION @.may_act FROM PUBLIC;

-- Inserts messages and hints into the inbox of an agent, which the id or the name identifies, unless the inbox is closed.
--
-- `by`: role of their producer. `again`: retry after a lost answer, which skips messages that were inserted before and have ended since;
-- `locks`: such a retry takes the agent's lock. Inserts nothing unless the process may act for its lease, and the agent accepts messages of
-- `size`; an agent without a limit of its own accepts at most `most`. Returns these conditions as `is_fit`, and the agent's state,
-- which the sender needs next. Returns no row if the agent does not exist.
CREATE FUNCTION @.arrive(agent bigint, name text, by name, prios smallint[], ids uuid[], bodies text[], again boolean, locks boolean,
  subject text, fence bigint, run text, size bigint, most bigint) RETURNS TABLE (is_fit boolean, is_shut boolean, state text)
LANGUAGE plpgsql AS $arrive$
DECLARE one bigint := coalesce(agent, (SELECT a.id FROM @.agent a WHERE a.name = arrive.name));
BEGIN
  IF again AND locks THEN
    PERFORM FROM @.state s WHERE s.agent_id = one FOR UPDATE;
  END IF;
  -- An insertion takes this lock shared; `apply` takes it exclusively to close the inbox. So each insertion is committed before the inbox
  -- closes, or sees that the inbox is closed.
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('@', one));
  SELECT a.is_shut, @.may_act(one, arrive.subject, arrive.fence, run)
      AND (size IS NULL OR a.takes >= size OR a.takes = -1 AND size <= most)
    INTO is_shut, is_fit FROM @.agent a WHERE a.id = one;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF is_fit AND NOT is_shut THEN
    INSERT INTO @.inbox (agent_id, prio, id, by, body)
      SELECT one, v.prio, v.id, arrive.by, v.body::json FROM unnest(prios, ids, bodies) v (prio, id, body)
      WHERE NOT (again AND EXISTS (SELECT FROM @.archive e
        WHERE e.agent_id = one AND e.id = 'msg_' || replace(v.id::text, '-', '')))
      ON CONFLICT DO NOTHING;
  END IF;
  SELECT s.body INTO state FROM @.state s WHERE s.agent_id = one;
  RETURN NEXT;
END $arrive$;
REVOKE ALL ON FUNCTION @.arrive FROM PUBLIC;

-- Inserts messages and hints like `arrive`, with the caller's role as their producer. Producers call it because they can't read tables.
-- Returns `arrived`, `shut` or `gone`. Refuses messages that interject, and records above the maximum size.
CREATE FUNCTION @.deliver(agent text, prios smallint[], ids uuid[], bodies text[], again boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $deliver$
BEGIN
  IF EXISTS (SELECT FROM unnest(prios) p WHERE p NOT IN (-1, 1, 2, 3)) THEN
    RAISE insufficient_privilege USING MESSAGE = 'a producer can''t interject';
  END IF;
  IF EXISTS (SELECT FROM unnest(bodies) b WHERE octet_length(b) > 8388608) THEN
    RAISE program_limit_exceeded USING MESSAGE = 'a record has at most 8 MiB';
  END IF;
  RETURN coalesce((SELECT CASE WHEN r.is_shut THEN 'shut' ELSE 'arrived' END
    FROM @.arrive(NULL, agent, session_user, prios, ids, bodies, again, true, NULL, NULL, NULL, NULL, NULL) r), 'gone');
END $deliver$;
REVOKE ALL ON FUNCTION @.deliver FROM PUBLIC;

-- Creates the missing partitions of archive and events for this month and the next `ahead` months. Ticking machines call it, so few
-- partitions are created early: each partition makes planning slower. Rows outside of all partitions go to the default partition.
-- A month that already has rows in the default partition gets no partition.
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

-- Drops the empty partitions of past months. Called when history has been deleted. The lock comes before the second check, because a line
-- of a past month may be added meanwhile. Writers wait behind the lock, so after `lock_timeout` the partition stays until the next call.
CREATE FUNCTION @.drop_months() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $drop_months$
DECLARE part regclass; parted regclass; has_lines boolean;
BEGIN
  FOR part, parted IN SELECT i.inhrelid, i.inhparent FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('@.archive'::regclass, '@.event'::regclass) AND c.relname ~ '_\d{4}_\d{2}$'
      AND right(c.relname, 7) < to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM') ORDER BY c.relname
  LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO has_lines;
    CONTINUE WHEN has_lines;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ACCESS EXCLUSIVE MODE', parted, part);
      EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO has_lines;
      IF NOT has_lines THEN EXECUTE format('DROP TABLE %s', part); END IF;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN NULL;
    END;
  END LOOP;
END $drop_months$;
REVOKE ALL ON FUNCTION @.drop_months FROM PUBLIC;

-- Returns the records of an agent, all of one revision: a word for the kind of each row, and up to four texts. `with_past` adds the
-- lines of the archive that a claim needs, newest first: the last briefs, and the end of the first message of the inbox.
CREATE FUNCTION @.load(agent bigint, with_past boolean) RETURNS TABLE (what text, a text, b text, c text, d text)
-- On partitioned tables the server overestimates the cost of a generic plan, and would otherwise make a plan for each call.
LANGUAGE plpgsql STABLE ROWS 8 SET plan_cache_mode = force_generic_plan AS $load$
BEGIN
  RETURN QUERY
    SELECT 'state', s.revision::text, s.fence::text, s.body::text, NULL FROM @.state s WHERE s.agent_id = $1
    UNION ALL SELECT 'agent', n.policy, n.identity::text, n.name, NULL FROM @.agent n WHERE n.id = $1
    UNION ALL SELECT 'open', r.kind, r.id, r.body::text, NULL FROM @.record r WHERE r.agent_id = $1
    UNION ALL (SELECT 'message', i.prio::text, i.id::text,
        CASE WHEN row_number() OVER (ORDER BY i.prio, i.id) <= 2 THEN i.body::text END, i.by::text
      FROM @.inbox i WHERE i.agent_id = $1 AND i.prio >= 0 ORDER BY i.prio, i.id LIMIT 256)
    UNION ALL (SELECT 'hint', h.id::text, h.body::text, h.by::text, NULL FROM @.inbox h
      WHERE h.agent_id = $1 AND h.prio = -1 ORDER BY h.id)
    UNION ALL SELECT 'lease', l.subject, l.fence::text, l.anchor, (l.expires_at > @now)::text
      FROM @.lease l WHERE l.agent_id = $1;
  IF with_past THEN
    RETURN QUERY SELECT 'brief', t.seq::text, t.body::text, NULL, NULL FROM @.archive t
      WHERE t.agent_id = $1 AND t.kind = 'brief' ORDER BY t.seq DESC LIMIT 5;
    RETURN QUERY SELECT 'ended', t.kind::text, t.body::text, NULL, NULL FROM @.archive t
      WHERE t.agent_id = $1 AND t.id = (SELECT 'msg_' || replace(i.id::text, '-', '') FROM @.inbox i
        WHERE i.agent_id = $1 AND i.prio >= 0 ORDER BY i.prio, i.id LIMIT 1) ORDER BY t.seq DESC;
  END IF;
END $load$;
REVOKE ALL ON FUNCTION @.load FROM PUBLIC;

-- Writes a change of an agent, in the order of its rows: a word, and its operands, which are NULL where a row has fewer. The caller
-- has the lock of the agent. Notifies the processes that wait for a change of the agent, when the transaction commits.
CREATE FUNCTION @.apply(agent bigint, made bigint, ops text[]) RETURNS void LANGUAGE plpgsql AS $apply$
DECLARE op text[]; relation text; forgets boolean := false; now_ms bigint := @now;
BEGIN
  -- If the server's notification queue is full, the commit fails. So no notification is sent to a queue that is half full.
  PERFORM pg_notify(w.channel, '') FROM @.watcher w
    WHERE w.agent_id = agent AND w.until > now_ms AND pg_notification_queue_usage() < 0.5;
  FOREACH op SLICE 1 IN ARRAY ops LOOP
    CASE op[1]
    WHEN 'state' THEN                 -- revision, due time or NULL, text
      UPDATE @.state s SET revision = op[2]::bigint, body = op[4]::json WHERE s.agent_id = agent;
      IF NOT FOUND THEN
        INSERT INTO @.state (agent_id, revision, body) VALUES (agent, op[2]::bigint, op[4]::json);
      END IF;
      IF op[3] IS NULL THEN
        DELETE FROM @.due d WHERE d.agent_id = agent;
      ELSE
        INSERT INTO @.due AS d (agent_id, pool, due_at) SELECT n.id, n.pool, op[3]::bigint FROM @.agent n WHERE n.id = agent
          ON CONFLICT (agent_id) DO UPDATE SET due_at = excluded.due_at, pool = excluded.pool
          WHERE (d.due_at, d.pool) IS DISTINCT FROM (excluded.due_at, excluded.pool);
      END IF;
    WHEN 'event' THEN                 -- number, time, text
      INSERT INTO @.event (agent_id, number, at, revision, body) VALUES (agent, op[2]::bigint, op[3]::bigint, made, op[4]::json);
    WHEN 'ended' THEN                 -- kind, id or NULL, time, text
      INSERT INTO @.archive (agent_id, kind, at, revision, id, body)
        VALUES (agent, op[2], op[4]::bigint, made, op[3], op[5]::json);
    WHEN 'taken' THEN                 -- priority, id
      DELETE FROM @.inbox i WHERE i.agent_id = agent AND i.prio = op[2]::smallint AND i.id = op[3]::uuid;
    WHEN 'lease' THEN                 -- subject, fence, anchor, host, process, duration
      INSERT INTO @.lease (agent_id, subject, fence, anchor, host, pid, expires_at)
        VALUES (agent, op[2], op[3]::bigint, op[4], op[5], op[6]::bigint, now_ms + op[7]::bigint)
        ON CONFLICT (agent_id, subject) DO UPDATE SET fence = excluded.fence, anchor = excluded.anchor, host = excluded.host,
          pid = excluded.pid, expires_at = excluded.expires_at, has_slot = false;
      UPDATE @.state s SET fence = op[3]::bigint WHERE s.agent_id = agent;
    WHEN 'released' THEN              -- subject, fence, anchor
      DELETE FROM @.lease l WHERE l.agent_id = agent AND l.subject = op[2] AND l.fence = op[3]::bigint AND l.anchor = op[4];
    WHEN 'open' THEN                  -- kind, id, text
      INSERT INTO @.record (agent_id, kind, id, body) VALUES (agent, op[2], op[3], op[4]::json)
        ON CONFLICT (agent_id, kind, id) DO UPDATE SET body = excluded.body;
    WHEN 'closed' THEN                -- kind, id
      DELETE FROM @.record r WHERE r.agent_id = agent AND r.kind = op[2] AND r.id = op[3];
      IF op[2] = 'work' THEN
        DELETE FROM @.plan p WHERE p.agent_id = agent AND p.id = op[3];
      ELSIF op[2] = 'trigger' THEN
        DELETE FROM @.trigger_key k WHERE k.agent_id = agent AND k.trigger_id = op[3];
        DELETE FROM @.trigger_use u WHERE u.agent_id = agent AND u.trigger_id = op[3];
      END IF;
    WHEN 'arrived' THEN               -- priority, id, text; the message may be in the inbox with another priority
      DELETE FROM @.inbox i WHERE i.agent_id = agent AND i.id = op[3]::uuid
        AND i.prio = ANY (CASE WHEN op[2] = '-1' THEN '{-1}' ELSE '{0,1,2,3}' END::smallint[]);
      INSERT INTO @.inbox (agent_id, prio, id, body) VALUES (agent, op[2]::smallint, op[3]::uuid, op[4]::json);
    WHEN 'key' THEN                   -- SHA-256, time, text
      INSERT INTO @.dedupe (agent_id, key_sha, revision, admitted_at, body)
        VALUES (agent, decode(op[2], 'hex'), made, op[3]::bigint, op[4]::json)
        ON CONFLICT (agent_id, key_sha) DO UPDATE
        SET revision = excluded.revision, admitted_at = excluded.admitted_at, body = excluded.body;
    WHEN 'forget_keys' THEN           -- time
      DELETE FROM @.dedupe k WHERE k.agent_id = agent AND k.admitted_at < op[2]::bigint;
    WHEN 'plan' THEN                  -- work item, bytes; the record of the work item may follow
      INSERT INTO @.plan (agent_id, id, body) VALUES (agent, op[2], decode(op[3], 'hex'))
        ON CONFLICT (agent_id, id) DO UPDATE SET body = excluded.body;
    WHEN 'saved' THEN                 -- run, name, part, bytes
      INSERT INTO @.blob (agent_id, subject, name, part, bytes) VALUES (agent, op[2], op[3], op[4]::int, decode(op[5], 'hex'))
        ON CONFLICT (agent_id, subject, name, part) DO UPDATE SET bytes = excluded.bytes;
    WHEN 'unsaved' THEN               -- run
      DELETE FROM @.blob b WHERE b.agent_id = agent AND b.subject = op[2];
    WHEN 'trigger_key' THEN           -- trigger, SHA-256, bytes
      INSERT INTO @.trigger_key (agent_id, trigger_id, sha, key) VALUES (agent, op[2], op[3], decode(op[4], 'hex'))
        ON CONFLICT (agent_id, trigger_id) DO UPDATE SET sha = excluded.sha, key = excluded.key;
    WHEN 'slot' THEN                  -- the lease of the run counts toward the limit of concurrent turns
      UPDATE @.lease l SET has_slot = true WHERE l.agent_id = agent AND l.subject = 'run';
    WHEN 'policy' THEN                -- text, pool, maximum size of a message or NULL
      UPDATE @.agent n SET policy = op[2], pool = op[3], takes = op[4]::bigint WHERE n.id = agent;
      UPDATE @.due d SET pool = op[3] WHERE d.agent_id = agent AND d.pool <> op[3];
    WHEN 'identity' THEN              -- text
      UPDATE @.agent n SET identity = op[2]::json WHERE n.id = agent;
    WHEN 'room' THEN                  -- name
      UPDATE @.agent n SET room = op[2] WHERE n.id = agent;
    WHEN 'shut' THEN                  -- true or false; true also raises the fence at which new agents begin
      IF op[2]::boolean THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('@', agent));
        UPDATE @.fence_floor f SET fence = s.fence FROM @.state s WHERE s.agent_id = agent AND s.fence > f.fence;
      END IF;
      UPDATE @.agent n SET is_shut = op[2]::boolean WHERE n.id = agent;
    WHEN 'name' THEN                  -- name
      UPDATE @.agent n SET name = op[2] WHERE n.id = agent;
    WHEN 'removed' THEN
      UPDATE @.fence_floor f SET fence = s.fence FROM @.state s WHERE s.agent_id = agent AND s.fence > f.fence;
      DELETE FROM @.agent n WHERE n.id = agent;
    WHEN 'emptied' THEN               -- array of tables whose rows of the agent are deleted
      FOREACH relation IN ARRAY op[2]::text[] LOOP
        EXECUTE format('DELETE FROM @.%I WHERE agent_id = $1', relation) USING agent;
      END LOOP;
    WHEN 'begin_at_floor' THEN        -- gives a new agent the fence of `fence_floor`
      UPDATE @.state s SET fence = greatest(s.fence, f.fence) FROM @.fence_floor f WHERE s.agent_id = agent;
    WHEN 'forgotten' THEN             -- from, until, last revision
      -- Checkpoints that no record names are deleted, too. The archive line of a dead letter names its checkpoint, because the
      -- message can be requeued.
      DELETE FROM @.blob b WHERE b.agent_id = agent
        AND NOT EXISTS (SELECT FROM @.state n WHERE n.agent_id = agent AND strpos(n.body::text, b.subject) > 0)
        AND NOT EXISTS (SELECT FROM @.inbox n WHERE n.agent_id = agent AND strpos(n.body::text, b.subject) > 0)
        AND NOT EXISTS (SELECT FROM @.record n WHERE n.agent_id = agent AND strpos(n.body::text, b.subject) > 0)
        AND NOT EXISTS (SELECT FROM @.archive n WHERE n.agent_id = agent AND strpos(n.body::text, b.subject) > 0
          AND NOT (n.at >= op[2]::bigint AND n.at < op[3]::bigint AND n.revision <= op[4]::bigint));
      DELETE FROM @.archive t WHERE t.agent_id = agent AND t.kind <> 'ended'
        AND t.at >= op[2]::bigint AND t.at < op[3]::bigint AND t.revision <= op[4]::bigint;
      DELETE FROM @.event t WHERE t.agent_id = agent
        AND t.at >= op[2]::bigint AND t.at < op[3]::bigint AND t.revision <= op[4]::bigint;
      forgets := true;
    END CASE;
  END LOOP;
  IF forgets THEN
    PERFORM @.drop_months();
  END IF;
END $apply$;
REVOKE ALL ON FUNCTION @.apply FROM PUBLIC;

-- Takes a lease that is free, expired, or held by this machine (`anchor`), for `lasts` milliseconds. Returns the agent's last fence before
-- the call, and the fence of the lease: NULL if another machine holds the lease, or the last fence is invalid. Returns no row if the agent
-- does not exist.
CREATE FUNCTION @.take_lease(agent bigint, subject text, anchor text, host text, pid bigint, lasts bigint)
RETURNS TABLE (last bigint, granted bigint) LANGUAGE plpgsql AS $take_lease$
BEGIN
  SELECT s.fence INTO last FROM @.state s WHERE s.agent_id = agent FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF last >= 0 AND last < 1::bigint << 62 AND NOT EXISTS (SELECT FROM @.lease l WHERE l.agent_id = agent
      AND l.subject = take_lease.subject AND l.anchor <> take_lease.anchor AND l.expires_at > @now) THEN
    granted := last + 1;
    PERFORM @.apply(agent, 0, ARRAY[ARRAY['lease', subject, granted::text, anchor, host, pid::text, lasts::text]]);
  END IF;
  RETURN NEXT;
END $take_lease$;
REVOKE ALL ON FUNCTION @.take_lease FROM PUBLIC;

INSERT INTO @.meta VALUES ('format', '1'), ('store', gen_random_uuid()::text);

SELECT @.make_months(1);
