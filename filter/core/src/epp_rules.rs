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
    /// The commit ebab68792 between the releases, with which the comparison of decisions is recorded.
    Ebab68792,
    /// The release v0.11.
    V011,
}

impl EppRules {
    /// The choices of an operator.
    pub const NAMED: [Self; 3] = [Self::Own, Self::V010, Self::V011];

    /// The former name of v0.11, from before it was released.
    pub const FORMER_V011: &str = "main";

    /// As flags and annotations name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::V010 => "v0.10",
            Self::Ebab68792 => "ebab68792",
            Self::V011 => "v0.11",
        }
    }

    /// The choice of this name, or the allowed names.
    pub fn read(text: &str) -> Result<Self, String> {
        if text == Self::FORMER_V011 {
            return Ok(Self::V011);
        }
        let known = Self::NAMED.into_iter().chain([Self::Ebab68792]).find(|rules| rules.as_str() == text);
        known.ok_or_else(|| format!("allowed are {}", Self::NAMED.map(Self::as_str).join(", ")))
    }

    /// Whether rules decide that the EPP has since v0.11.
    pub fn is_v011(self) -> bool {
        self == Self::V011
    }

    /// Whether rules decide that the EPP has had since the recorded commit.
    pub fn is_after_v010(self) -> bool {
        matches!(self, Self::Ebab68792 | Self::V011)
    }

    /// Whether our own rules decide.
    pub fn is_own(self) -> bool {
        self == Self::Own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn every_name_is_read_and_the_former_one_too() {
        for rules in EppRules::NAMED {
            assert_eq!(EppRules::read(rules.as_str()), Ok(rules));
        }
        assert_eq!(EppRules::read("main"), Ok(EppRules::V011));
        assert_eq!(EppRules::read("v0.12").unwrap_err(), "allowed are own, v0.10, v0.11");
    }
}
