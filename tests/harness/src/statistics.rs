//! The picker's statistics. Their names and labels in Envoy's text for Prometheus do not depend on the
//! filter's form.

use crate::program::Envoy;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

/// Beginning of all names of the picker's statistics.
const PREFIX: &str = "endpoint_picker_";

/// The counters of decided requests, each counted in one of them.
const DECIDED: [&str; 3] = ["routed", "rejected", "abstained"];

/// The picker's series in Envoy's text for Prometheus. Workers add to them once a second.
#[derive(Clone, Debug)]
pub struct PickerStatistics(Vec<(Series, String)>);

/// A name, without [`PREFIX`], and its labels in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
}

impl PickerStatistics {
    /// Reads them now.
    pub async fn of(envoy: &Envoy) -> Result<Self> {
        Ok(Self::parse(&envoy.admin_text("/stats/prometheus").await?))
    }

    /// Reads now how many requests the picker has [decided](Self::decided), for much less of Envoy's time.
    pub async fn decided_by(envoy: &Envoy) -> Result<u64> {
        let path = format!("/stats/prometheus?filter=endpoint_picker.*({})", DECIDED.join("|"));
        Ok(Self::parse(&envoy.admin_text(&path).await?).decided())
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.strip_prefix(PREFIX)?.rsplit_once(' '));
        Self(lines.filter_map(|(series, value)| Some((Series::parse(series)?, value.to_owned()))).collect())
    }

    /// The value of a counter or gauge such as `picks{pool="default",endpoint="10.0.0.1:80"}`; 0 while there
    /// is none.
    pub fn count(&self, series: &str) -> u64 {
        self.value(series).unwrap_or(0)
    }

    /// The value of a series, or of a histogram's sum, which is not a whole number.
    ///
    /// # Panics
    ///
    /// When `series` is not a name with labels.
    pub fn value<T: FromStr>(&self, series: &str) -> Result<T, String> {
        let wanted = Series::parse(series).unwrap_or_else(|| panic!("{series} is a name with labels"));
        let value = self.0.iter().find_map(|(series, value)| (*series == wanted).then_some(value));
        let value = value.ok_or_else(|| format!("no {series} in:\n{self}"))?;
        value.parse().map_err(|_| format!("{series} is {value}"))
    }

    /// The sum of all series of a counter or gauge.
    pub fn sum(&self, name: &str) -> u64 {
        let values = self.0.iter().filter(|(series, _)| series.name == name).map(|(_, value)| value);
        values.filter_map(|value| value.parse::<u64>().ok()).sum()
    }

    /// How many series a name has.
    pub fn series(&self, name: &str) -> usize {
        self.0.iter().filter(|(series, _)| series.name == name).count()
    }

    /// Requests that the picker has decided: to route, to reject, or to leave to Envoy.
    pub fn decided(&self) -> u64 {
        DECIDED.map(|name| self.sum(name)).iter().sum()
    }
}

impl Display for PickerStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(Series { name, labels }, value)| writeln!(f, "{name} {labels:?} {value}"))
    }
}

impl Series {
    /// `None` if it is not a name with labels in braces.
    fn parse(text: &str) -> Option<Self> {
        let (name, mut rest) = text.split_once('{')?;
        let mut labels = BTreeMap::new();
        while rest != "}" {
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, after) = unquoted(quoted)?;
            labels.insert(label.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        Some(Self { name: name.to_owned(), labels })
    }
}

/// The text up to a quotation mark without a backslash before it, and what follows that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            _ => value.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE endpoint_picker_routed counter
endpoint_picker_routed{pool="default"} 3
endpoint_picker_rejected{status="429",pool="default"} 1
endpoint_picker_rejected{pool="default",status="400"} 2
endpoint_picker_model_requests{pool="default",model_name="a\",b=\"{}\\\n",target_model="c d"} 4
endpoint_picker_ntpot_us_sum{pool="default"} 1.5
envoy_cluster_upstream_rq_total{envoy_cluster_name="model-servers"} 9
"#;

    #[test]
    fn series_are_found_by_their_labels_in_any_order() {
        let statistics = PickerStatistics::parse(TEXT);
        assert_eq!(statistics.count(r#"rejected{pool="default",status="429"}"#), 1);
        assert_eq!(statistics.value(r#"ntpot_us_sum{pool="default"}"#), Ok(1.5));
        let model = r#"model_requests{target_model="c d",pool="default",model_name="a\",b=\"{}\\\n"}"#;
        assert_eq!(statistics.count(model), 4);
        assert_eq!(statistics.count(r#"rejected{pool="default"}"#), 0);
        assert!(statistics.value::<u64>(r#"ntpot_us_sum{pool="default"}"#).is_err());
        assert!(statistics.value::<u64>(r#"rejected{pool="default"}"#).is_err());
    }

    #[test]
    fn series_of_a_name_are_summed_and_counted() {
        let statistics = PickerStatistics::parse(TEXT);
        assert_eq!((statistics.sum("rejected"), statistics.series("rejected")), (3, 2));
        assert_eq!(statistics.decided(), 6);
    }
}
