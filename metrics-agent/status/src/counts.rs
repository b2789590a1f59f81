//! The JSON of counts and rates: a field for each number that the table of statistics shows.

use endpoint_picker_wire::figures::{Figure, Figures};
use endpoint_picker_wire::statistics::{self, Field, Shown, Statistic};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// The place of a number: an object in which it is, or none, and its name there.
type Place = (Option<&'static str>, String);

/// The counts of a proxy.
pub(crate) mod totals {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(counts: &Figures<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        write(counts, place_of_total, &Value::from(0)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Figures<u64>, D::Error> {
        read(&Map::deserialize(deserializer)?, place_of_total)
    }
}

/// The rates of requests; a rate that is not known is null.
pub(crate) mod rates {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(rates: &Figures<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        write(rates, place_of_rate, &Value::Null).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Figures<f64>, D::Error> {
        read(&Map::deserialize(deserializer)?, place_of_rate)
    }
}

fn place_of_total(statistic: &Statistic, shown: &Shown) -> Option<Place> {
    Some(match shown.field {
        Field::Requests { .. } => (None, statistic.name.to_owned()),
        Field::Part { object, name } => (Some(object), name.to_owned()),
    })
}

fn place_of_rate(statistic: &Statistic, shown: &Shown) -> Option<Place> {
    match shown.field {
        Field::Requests { .. } => Some((None, format!("{}_per_second", statistic.name))),
        Field::Part { .. } => None,
    }
}

/// The fields of these numbers. An object without any of its numbers is absent.
fn write<T: Figure + Into<Value>>(
    figures: &Figures<T>,
    place: fn(&Statistic, &Shown) -> Option<Place>,
    missing: &Value,
) -> Map<String, Value> {
    let mut fields = Map::new();
    let places = || statistics::shown().filter_map(|(row, shown)| Some((row, shown, place(row, shown)?)));
    let is_present =
        |object| places().any(|(row, _, (other, _))| other == Some(object) && figures.total(row).is_some());
    for (statistic, shown, (object, name)) in places() {
        let number = match shown.by {
            Some(_) => figures.by_value(statistic).map(|(value, it)| (value.to_owned(), it.into())).collect(),
            None => figures.total(statistic).map_or_else(|| missing.clone(), Into::into),
        };
        match object {
            None => drop(fields.insert(name, number)),
            Some(object) if is_present(object) => {
                let parts = fields.entry(object).or_insert_with(|| Map::new().into());
                parts.as_object_mut().and_then(|parts| parts.insert(name, number));
            }
            Some(_) => {}
        }
    }
    fields
}

/// Reads the numbers of these fields.
fn read<T: Figure + DeserializeOwned, E: Error>(
    fields: &Map<String, Value>,
    place: fn(&Statistic, &Shown) -> Option<Place>,
) -> Result<Figures<T>, E> {
    let mut figures = Figures::default();
    for (statistic, shown) in statistics::shown() {
        let Some((object, name)) = place(statistic, shown) else { continue };
        let number = match object {
            None => fields.get(&name),
            Some(object) => fields.get(object).and_then(|parts| parts.get(&name)),
        };
        let mut set = |value: &str, number: &Value| {
            let number = T::deserialize(number).map_err(|error| E::custom(format!("{name}: {error}")))?;
            figures.set(statistic, value, number);
            Ok(())
        };
        match number {
            None | Some(Value::Null) => {}
            Some(Value::Object(values)) => values.iter().try_for_each(|(value, it)| set(value, it))?,
            Some(number) => set("", number)?,
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::statistics::{Count, REJECTED, RESUMED_STREAMS};
    use serde_json::json;

    use crate::pool::{PoolTraffic, ProxyStatus};

    #[test]
    fn numbers_are_fields_and_those_of_newer_agents_are_passed_over() {
        let mut proxy = ProxyStatus::default();
        proxy.counts.set(Count::Routed.statistic(), "", 7);
        proxy.counts.set(&REJECTED, "429", 2);
        proxy.counts.set(&RESUMED_STREAMS, "", 0);
        let mut json = serde_json::to_value(&proxy).unwrap();
        assert_eq!(
            (&json["routed"], &json["abstained"], &json["shadow"]),
            (&7.into(), &0.into(), &().into())
        );
        assert_eq!(json["rejected"], json!({"429": 2}));
        let streams = json!({"resumable": 0, "resumed": 0, "cut": {}, "unresumable": {}});
        assert_eq!(json["resumptions"], streams);
        json["newer"] = json!({"by": ["list"]});
        let read: ProxyStatus = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read.counts.total(&REJECTED), Some(2));
        json["routed"] = json!(-1);
        let error = serde_json::from_value::<ProxyStatus>(json).unwrap_err();
        assert!(error.to_string().starts_with("routed: "), "{error}");
    }

    #[test]
    fn rates_that_are_not_known_are_null() {
        let mut traffic = PoolTraffic::default();
        let json = serde_json::to_value(&traffic).unwrap();
        assert_eq!((&json["routed_per_second"], &json["rejected_per_second"]), (&().into(), &json!({})));
        assert_eq!(serde_json::from_value::<PoolTraffic>(json).unwrap(), traffic);
        traffic.rates.set(Count::Routed.statistic(), "", 1.5);
        let json = serde_json::to_value(&traffic).unwrap();
        assert_eq!(serde_json::from_value::<PoolTraffic>(json).unwrap(), traffic);
    }
}
