//! `active-request-filter`: endpoints with few requests in flight.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// Keeps the endpoints with at most `max_requests` requests in flight, by this proxy's count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ActiveRequestFilter {
    /// Required, 0 or more.
    max_requests: Option<i64>,
    /// Keeps all rather than none.
    fallback_on_empty: bool,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
}

impl Plugin for ActiveRequestFilter {
    fn check(&self) -> Result<(), String> {
        match self.max_requests {
            None => Err("maxRequests is not given; allowed is 0 and above".to_owned()),
            Some(max) if max < 0 => Err(format!("maxRequests is {max}; allowed is 0 and above")),
            Some(_) => Ok(()),
        }
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::load_producer(&self.in_flight_load_producer_name)]
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Filter for ActiveRequestFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let max = self.max_requests.map_or(0, i64::unsigned_abs);
        let fits = |&endpoint: &usize| cycle.load(endpoint).requests <= max;
        if !self.fallback_on_empty || candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::pool::load::Load;
    use crate::test;
    use serde_json::{Value, json};

    fn kept(parameters: Value) -> Vec<usize> {
        let filter: ActiveRequestFilter = serde_json::from_value(parameters).unwrap();
        let mut fixture = Fixture::of(3);
        fixture.in_flight = [2, 3, 4].map(|requests| Load { requests, tokens: 0 }).to_vec();
        fixture.kept(&filter, 1)
    }

    #[test]
    fn endpoints_up_to_the_limit_are_kept() {
        assert_eq!(kept(json!({"maxRequests": 3})), [0, 1]);
        assert_eq!(kept(json!({"maxRequests": 1})), [0; 0]);
        assert_eq!(kept(json!({"maxRequests": 1, "fallbackOnEmpty": true})), [0, 1, 2]);
    }

    #[test]
    fn a_limit_is_required() {
        for parameters in [json!({}), json!({"maxRequests": -1})] {
            let filter: ActiveRequestFilter = serde_json::from_value(parameters.clone()).unwrap();
            assert!(filter.check().is_err(), "{parameters}");
        }
    }
}
