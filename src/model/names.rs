//! Macro for enums whose variants have the same names in the contract, in Rust, in JSON and on the
//! command line.

/// Returns the error for a word that is not one of the expected names.
pub fn unknown_name(what: &str, word: &str, expected: &[&str]) -> String {
    format!("unknown {what} `{word}`: expected one of {}", expected.join(", "))
}

/// Declares an enum by the names of its variants. Aliases after `|` are read, and never written.
macro_rules! names {
    (
        $(#[$meta:meta])*
        $what:literal $type:ident {
            $(
                $(#[$vmeta:meta])*
                $variant:ident = $name:literal $(| $alias:literal)* $(as $words:literal)?
            ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(serde_with::SerializeDisplay, serde_with::DeserializeFromStr)]
        pub enum $type { $($(#[$vmeta])* $variant),+ }

        #[allow(dead_code, reason = "not all of these enums are enumerated, or shown in words")]
        impl $type {
            /// All variants, in the order of the contract.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// Returns the name of the variant in the contract.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }

            /// Returns the text for people: the words after `as` in `names!`, or else the name.
            pub const fn words(self) -> &'static str {
                match self { $($type::$variant => [$($words,)? $name][0]),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($name $(| $alias)* => Ok($type::$variant),)+
                    _ => Err($crate::model::unknown_name($what, word, &[$($name),+])),
                }
            }
        }

        #[cfg(test)]
        $crate::model::schema! { $type: { "type": "string", "enum": [$($name),+] } }
    };
}

pub(crate) use names;
