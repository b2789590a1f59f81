//! The rules that decide where ours differ from the EPP's, and its versions from each other.

/// The rules that decide where they differ: our own, or those of a version of the EPP. The differences
/// between versions are in `docs/reference/rules/README.md`, those of our own rules in
/// `docs/reference/differences.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EppRules {
    /// Our own, and the rules of v0.10 where the EPP's versions differ.
    #[default]
    Own,
    /// The release v0.10.
    V010,
    /// The main branch after it.
    Main,
}

impl EppRules {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Own, Self::V010, Self::Main];

    /// As flags and annotations name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::V010 => "v0.10",
            Self::Main => "main",
        }
    }

    /// Whether the rules of the main branch decide.
    pub fn is_main(self) -> bool {
        self == Self::Main
    }

    /// Whether our own rules decide.
    pub fn is_own(self) -> bool {
        self == Self::Own
    }
}
