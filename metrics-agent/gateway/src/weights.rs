//! The weights of a rule's backends, which only the hook of the endpoints gets.

use std::collections::BTreeMap;

use super::wire::{Malformed, WireMessage};

/// Maximum number of rules whose weights are kept. Rules that have not been translated for longest make room.
const MAX_RULES: usize = 65_536;

/// Maximum number of backends of a rule that are kept. The Gateway API allows 16.
const MAX_BACKENDS: usize = 64;

/// The weights of the backends of rules, as one connection of Envoy Gateway has sent them.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    rules: BTreeMap<String, WeightedRule>,
    /// Number of the translation that is in progress.
    translation: u64,
}

#[derive(Clone, Debug, Default)]
struct WeightedRule {
    /// Number of the last translation that had the rule.
    translation: u64,
    backends: BTreeMap<u32, RuleBackend>,
}

/// One backend of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RuleBackend {
    weight: u32,
    /// Whether it may be a pool: Envoy Gateway knows neither endpoints nor an object for it.
    is_bare: bool,
}

/// The weights of a rule with pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleWeights {
    /// The weight of each pool, in the order of the rule.
    pub pools: Vec<u32>,
    /// The weight of all other backends together.
    pub others: u32,
}

impl Weights {
    /// Takes the weights out of a `ClusterLoadAssignment`: endpoints = 2, each a locality = 1 with the
    /// backend's name as region = 1, `lb_endpoints` = 2, `load_balancing_weight` = 3, metadata = 9.
    pub fn insert(&mut self, assignment: &[u8]) -> Result<(), Malformed> {
        for locality in WireMessage::read(assignment)?.all(2) {
            let locality = WireMessage::read(locality)?;
            let Some(name) = locality.message(1) else { continue };
            let Some((rule, backend)) = rule_and_backend(WireMessage::read(&name)?.text(1)) else { continue };
            let weight = locality.wrapped_number(3)?.unwrap_or(1);
            let weight = u32::try_from(weight).unwrap_or(u32::MAX);
            let is_bare = !locality.has(2) && !locality.has(9);
            self.insert_backend(rule, backend, RuleBackend { weight, is_bare });
        }
        Ok(())
    }

    fn insert_backend(&mut self, name: &str, index: u32, backend: RuleBackend) {
        if !self.rules.contains_key(name) && self.rules.len() >= MAX_RULES {
            let oldest = self.rules.values().map(|rule| rule.translation).min();
            self.rules.retain(|_, rule| Some(rule.translation) != oldest);
        }
        let rule = self.rules.entry(name.to_owned()).or_default();
        if rule.translation != self.translation {
            // Backends of an earlier translation may be gone.
            *rule = WeightedRule { translation: self.translation, backends: BTreeMap::new() };
        }
        if rule.backends.len() < MAX_BACKENDS {
            rule.backends.insert(index, backend);
        }
    }

    /// A translation is complete.
    pub fn end_translation(&mut self) {
        self.translation += 1;
    }

    /// The weights of a rule with this number of pools. Weights that are not known are 1.
    pub fn of_rule(&self, rule: &str, pools: usize) -> RuleWeights {
        let backends = self.rules.get(rule).into_iter().flat_map(|rule| rule.backends.values());
        let (bare, others): (Vec<&RuleBackend>, Vec<&RuleBackend>) =
            backends.partition(|backend| backend.is_bare);
        let others = others.iter().fold(0, |sum: u32, other| sum.saturating_add(other.weight));
        let first = bare.first().map(|backend| backend.weight);
        let pools = if bare.len() == pools {
            bare.iter().map(|backend| backend.weight).collect()
        } else {
            // A backend that does not exist is bare too: then only equal weights are certain.
            let equal = first.filter(|first| bare.iter().all(|backend| backend.weight == *first));
            vec![equal.unwrap_or(1); pools]
        };
        RuleWeights { pools, others }
    }
}

/// The rule and the number of a backend, of a name such as `httproute/namespace/name/rule/0/backend/1`.
fn rule_and_backend(name: Option<&str>) -> Option<(&str, u32)> {
    let (rule, backend) = name?.rsplit_once("/backend/")?;
    Some((rule, backend.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Builder;

    const RULE: &str = "httproute/team/chat/rule/0";

    fn locality(backend: u32, weight: u32) -> Builder {
        let name = Builder::default().bytes(1, format!("{RULE}/backend/{backend}"));
        Builder::default().bytes(1, name).wrapped_number(3, weight)
    }

    fn assignment(localities: &[Builder]) -> Vec<u8> {
        let start = Builder::default().bytes(1, RULE);
        localities.iter().fold(start, |assignment, locality| assignment.bytes(2, locality)).into_bytes()
    }

    fn weights(localities: &[Builder]) -> Weights {
        let mut weights = Weights::default();
        weights.insert(&assignment(localities)).unwrap();
        weights
    }

    #[test]
    fn pools_have_their_weights_and_services_the_rest() {
        let service = locality(1, 20).bytes(2, Builder::default());
        let unready = locality(2, 5).bytes(9, Builder::default());
        let weights = weights(&[locality(0, 70), service, unready, locality(3, 30)]);
        assert_eq!(weights.of_rule(RULE, 2), RuleWeights { pools: vec![70, 30], others: 25 });
        let unknown = RuleWeights { pools: vec![1, 1], others: 0 };
        assert_eq!(weights.of_rule("httproute/team/chat/rule/1", 2), unknown);
    }

    #[test]
    fn with_a_backend_that_does_not_exist_only_equal_weights_are_used() {
        let of = |localities: &[Builder]| weights(localities).of_rule(RULE, 1).pools;
        assert_eq!(of(&[locality(0, 7), locality(1, 7)]), [7]);
        assert_eq!(of(&[locality(0, 7), locality(1, 8)]), [1]);
    }

    #[test]
    fn backends_of_an_earlier_translation_do_not_count() {
        let mut weights = weights(&[locality(0, 1), locality(1, 2)]);
        weights.end_translation();
        assert_eq!(
            weights.of_rule(RULE, 2).pools,
            [1, 2],
            "another Gateway's translation may not have the rule"
        );
        // Clusters of their own for each backend, one message each.
        weights.insert(&assignment(&[locality(0, 5)])).unwrap();
        weights.insert(&assignment(&[locality(1, 6)])).unwrap();
        assert_eq!(weights.of_rule(RULE, 2).pools, [5, 6]);
        weights.end_translation();
        weights.insert(&assignment(&[locality(1, 9)])).unwrap();
        assert_eq!(weights.of_rule(RULE, 1).pools, [9]);
    }

    #[test]
    fn rules_and_backends_are_bounded() {
        let mut weights = weights(&(0..100).map(|index| locality(index, 1)).collect::<Vec<_>>());
        assert_eq!(weights.rules[RULE].backends.len(), MAX_BACKENDS);
        weights.end_translation();
        let backend = RuleBackend { weight: 1, is_bare: true };
        (0..MAX_RULES).for_each(|index| weights.insert_backend(&format!("rule {index}"), 0, backend));
        assert_eq!(weights.rules.len(), MAX_RULES);
        assert!(!weights.rules.contains_key(RULE), "the oldest made room");
    }
}
