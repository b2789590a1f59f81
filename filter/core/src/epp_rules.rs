//! The version of the EPP whose rules decide.

/// The version of the EPP whose rules decide where versions differ. All differences are in `docs/reference/rules/README.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EppRules {
    /// The release v0.10.
    #[default]
    V010,
    /// The main branch after it.
    Main,
}

impl EppRules {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V010, Self::Main];

    /// As flags and annotations name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V010 => "v0.10",
            Self::Main => "main",
        }
    }

    /// Whether the rules of the main branch decide.
    pub fn is_main(self) -> bool {
        self == Self::Main
    }
}
