//! JSON schemas of types that are written as text or as any JSON, for the published schemas.

use serde_json::{Map, Value};

use super::id::AgentName;
use super::inbox::DropsAs;
use super::json::{Extra, Sent};
use super::place::PlaceId;
use super::policy::{Limit, Size};
use super::preemption::Percent;
use super::retention::Keep;
use super::time::{Span, Time};
use super::trigger::TriggerScope;

/// Implements `JsonSchema` for a type, by an inline schema or by the schema of another type.
macro_rules! schema {
    ($type:ident as $other:ty) => {
        $crate::model::schema! { $type, generator, <$other as schemars::JsonSchema>::json_schema(generator) }
    };
    ($type:ident: $schema:tt) => {
        $crate::model::schema! { $type, _generator, schemars::json_schema!($schema) }
    };
    ($type:ident, $generator:ident, $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}

pub(crate) use schema;

schema! { AgentName: { "type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$" } }

schema! { Time: { "type": "string", "format": "date-time" } }

schema! { Span: { "type": "string", "examples": ["90s", "10m", "1h30m", "2d"] } }

schema! { Limit: {
    "description": "A duration, or 0 or \"never\" for none",
    "anyOf": [{ "type": "string", "examples": ["90s", "30m", "never"] }, { "const": 0 }],
} }

schema! { Size: {
    "description": "A number of bytes",
    "anyOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB)?$", "examples": ["1 MiB"] },
    ],
} }

schema! { Keep: {
    "description": "A duration, or \"forever\"",
    "type": "string",
    "examples": ["30d", "forever"],
} }

schema! { DropsAs: {
    "description": "An origin: KIND or KIND:ID",
    "type": "string",
    "pattern": "^(operator|channel|webhook|callback)(:.*)?$",
    "examples": ["channel:file", "channel:ci", "operator"],
} }

schema! { Percent: { "type": "string", "pattern": "^[0-9.]+ *%$", "examples": ["5%"] } }

schema! { PlaceId: { "type": "string", "pattern": "^[0-9]+:[0-9]+$" } }

schema! { TriggerScope: { "type": "string", "pattern": "^(agent|resource:.+|wait:wait_[0-9a-f]{32})$" } }

schema! { Extra as Map<String, Value> }

schema! { Sent as Value }
