//! `decode-filter`, `prefill-filter`, `encode-filter`: endpoints that take part in a stage of disaggregated
//! serving.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Filter, Plugin, Roles};
use crate::pool::Endpoint;
use crate::rng::Rng;

/// The label with an endpoint's role.
const ROLE: &str = "llm-d.ai/role";

/// An endpoint's role in disaggregated serving.
pub(crate) fn role_label(endpoint: &Endpoint) -> Option<&str> {
    endpoint.label(ROLE)
}

macro_rules! role_filters {
    ($($(#[$doc:meta])* $name:ident: $roles:expr, without_label: $without:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {}

        impl Plugin for $name {
            fn roles(self: Arc<Self>) -> Roles {
                Roles { filter: Some(self), ..Roles::default() }
            }
        }

        impl Filter for $name {
            fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
                let roles: &[&str] = &$roles;
                candidates.retain(|&endpoint| {
                    role_label(cycle.endpoint(endpoint)).map_or($without, |role| roles.contains(&role))
                });
            }

            fn eligibility(&self) -> crate::plugin::Eligibility {
                crate::plugin::Eligibility::SinceV011
            }
        }
    )*};
}

role_filters! {
    /// `decode-filter`: keeps endpoints that generate, and those without a role.
    DecodeFilter: ["decode", "prefill-decode", "both", "encode-prefill-decode"], without_label: true;
    /// `prefill-filter`: keeps endpoints that compute prompts for others.
    PrefillFilter: ["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"], without_label: false;
    /// `encode-filter`: keeps endpoints that encode images, videos and audio for others.
    EncodeFilter: ["encode", "encode-prefill", "encode-prefill-decode"], without_label: false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::test;

    const ROLES: [&str; 8] = [
        "decode",
        "prefill",
        "encode",
        "prefill-decode",
        "both",
        "encode-prefill",
        "encode-prefill-decode",
        "other",
    ];

    /// The roles kept, and whether an endpoint without a role is.
    fn kept(filter: &dyn Filter) -> (Vec<&'static str>, bool) {
        let mut fixture = Fixture::of(ROLES.len() + 1);
        for (endpoint, role) in ROLES.iter().enumerate() {
            fixture.label(endpoint, "llm-d.ai/role", role);
        }
        let kept = fixture.kept(filter, 1);
        let roles = kept.iter().filter_map(|&endpoint| ROLES.get(endpoint).copied());
        (roles.collect(), kept.contains(&ROLES.len()))
    }

    #[test]
    fn each_stage_has_its_roles() {
        let decode = vec!["decode", "prefill-decode", "both", "encode-prefill-decode"];
        assert_eq!(kept(&DecodeFilter {}), (decode, true));
        let prefill = vec!["prefill", "prefill-decode", "both", "encode-prefill", "encode-prefill-decode"];
        assert_eq!(kept(&PrefillFilter {}), (prefill, false));
        assert_eq!(
            kept(&EncodeFilter {}),
            (vec!["encode", "encode-prefill", "encode-prefill-decode"], false)
        );
    }
}
