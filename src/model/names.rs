//! Macro for enums whose variants have the same names in the contract, in Rust, in JSON and on the
//! command line.

/// Error when a word is not the name of a variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}`: expected one of {expected}")]
pub struct UnknownName {
    pub what: &'static str,
    pub word: String,
    pub expected: String,
}

macro_rules! names {
    (
        $(#[$meta:meta])*
        $what:literal $type:ident {
            $($(#[$vmeta:meta])* $variant:ident = $name:literal $(| $alias:literal)*),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(serde_with::SerializeDisplay, serde_with::DeserializeFromStr)]
        pub enum $type { $($(#[$vmeta])* $variant),+ }

        impl $type {
            /// All variants, in the order of the contract.
            #[allow(dead_code, reason = "some of these enums are only enumerated by tests")]
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// Returns the name of the variant in the contract.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::model::UnknownName;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($name $(| $alias)* => Ok($type::$variant),)+
                    _ => Err($crate::model::UnknownName {
                        what: $what,
                        word: word.to_owned(),
                        expected: [$($name),+].join(", "),
                    }),
                }
            }
        }

        $crate::model::schema! { $type: { "type": "string", "enum": [$($name),+] } }
    };
}

/// Implements `JsonSchema` for a type, by an inline schema or by the schema of another type.
macro_rules! schema {
    ($type:ident as $other:ty) => {
        $crate::model::schema! { $type, generator, <$other as schemars::JsonSchema>::json_schema(generator) }
    };
    ($type:ident: $schema:tt) => {
        $crate::model::schema! { $type, _generator, schemars::json_schema!($schema) }
    };
    ($type:ident, $generator:ident, $schema:expr) => {
        #[cfg(test)]
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

pub(crate) use {names, schema};
