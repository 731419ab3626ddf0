//! Which agents a ticking process looks at: those that are due, and those with arrivals. Each is a walk along an index, as
//! long as what it finds.

/// Agents of a pool whose moment has come, by the server's clock, the most urgent first. `statement_timestamp()` is one
/// moment, which an index takes as a condition; a clock that goes on would not be.
#[cfg_attr(not(test), expect(dead_code, reason = "a tick over many agents asks every agent so far"))]
pub fn due(schema: &str, pool: &str, most: usize) -> String {
    format!(
        "SELECT d.agent_id FROM {schema}.due d WHERE d.pool = {} AND d.rank = 0 \
         AND d.due_at <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint ORDER BY d.due_at LIMIT {most}",
        super::wire::literal(pool)
    )
}

/// Agents that something has come for, one probe for each, however long its inbox is. `after`: the number of the agent
/// after which the walk begins.
#[cfg_attr(not(test), expect(dead_code, reason = "a tick over many agents asks every agent so far"))]
pub fn with_arrivals(schema: &str, after: i64, most: usize) -> String {
    let next = |than: &str| {
        format!(
            "SELECT i.agent_id FROM {schema}.inbox i WHERE i.fresh AND i.agent_id > {than} ORDER BY i.agent_id LIMIT 1"
        )
    };
    format!(
        "WITH RECURSIVE f(agent_id) AS (({}) UNION ALL SELECT ({}) FROM f WHERE f.agent_id IS NOT NULL) \
         SELECT agent_id FROM f WHERE agent_id IS NOT NULL LIMIT {most}",
        next(&after.to_string()),
        next("f.agent_id")
    )
}
