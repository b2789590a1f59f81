//! Annotations of a pool.

use endpoint_picker::epp_rules::EppRules;

use crate::manifests::fault::quoted;
use crate::manifests::fields::Texts;

/// The annotation that names the rules that decide: our own, or those of a version of the EPP.
const EPP_RULES: &str = "endpoint-picker/epp-rules";

/// The annotation that names other pools of the namespace, which take requests for which the pool has no
/// room.
pub(super) const FALLBACK: &str = "endpoint-picker/fallback";

/// The annotation with the share of sessions that is recorded.
const RECORD_SAMPLE: &str = "endpoint-picker/record-sample";

/// Maximum number of other pools, as in the native module's configuration.
const MAX_FALLBACK: usize = 8;

/// The rules that a pool's annotations name; `None`: the agent's flag decides.
pub(super) fn epp_rules(annotations: &Texts) -> Result<Option<EppRules>, String> {
    let Some(given) = annotations.0.get(EPP_RULES) else { return Ok(None) };
    let read = EppRules::read(given).map(Some);
    read.map_err(|allowed| format!("{EPP_RULES:?}: {} is unknown; {allowed}", quoted(given)))
}

/// A warning about rules that annotations name by a former name.
pub(super) fn former_rules(annotations: &Texts) -> Option<String> {
    let (former, current) = (EppRules::FORMER_V011, EppRules::V011.as_str());
    let is_former = annotations.0.get(EPP_RULES).is_some_and(|given| given == former);
    is_former.then(|| format!("{EPP_RULES:?}: {former:?} is the former name of {current}; use {current}"))
}

/// The share of a text: a number from 0 to 1.
pub fn share_of(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
}

/// The share of sessions that is recorded, by a pool's annotations; `None`: the agent's flag decides.
pub(super) fn record_sample(annotations: &Texts) -> Result<Option<f64>, String> {
    let Some(given) = annotations.0.get(RECORD_SAMPLE) else { return Ok(None) };
    let refused =
        || format!("{RECORD_SAMPLE:?}: {} is refused; allowed is a number from 0 to 1", quoted(given));
    share_of(given).map(Some).ok_or_else(refused)
}

/// The other pools that the annotations of the pool `own` name, by their names in its namespace; none without
/// the annotation.
pub(super) fn fallback<'a>(annotations: &'a Texts, own: &str) -> Result<Vec<&'a str>, String> {
    let Some(list) = annotations.0.get(FALLBACK) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for name in list.split(',').map(str::trim) {
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name || name == own || names.contains(&name) || names.len() == MAX_FALLBACK {
            return Err(format!(
                "{FALLBACK:?}: {} is refused; allowed are the names of up to {MAX_FALLBACK} other pools of the namespace, each once, \
                 separated by commas",
                quoted(name)
            ));
        }
        names.push(name);
    }
    Ok(names)
}
