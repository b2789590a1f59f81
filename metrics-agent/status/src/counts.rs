//! The JSON of counts and rates: a field for each number that the table of statistics shows.

use endpoint_picker_wire::figures::{Figure, Figures};
use endpoint_picker_wire::statistics::{self, Field, Shown, Statistic};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A number in JSON: the object in which it is, if it is in one, and its name there.
type Place = (Option<&'static str>, String);

fn places<T: Figure>() -> impl Iterator<Item = (&'static Statistic, &'static Shown, Place)> {
    statistics::shown().filter_map(|(row, shown)| match shown.field {
        Field::Requests(..) => Some((row, shown, (None, format!("{}{}", row.name, T::SUFFIX)))),
        Field::Part(object, name) if T::SUFFIX.is_empty() => {
            Some((row, shown, (Some(object), name.to_owned())))
        }
        Field::Part(..) | Field::Derived => None,
    })
}

/// A number that is not known is null, and an object without a known number is absent.
pub(crate) fn serialize<T: Figure + Into<Value>, S: Serializer>(
    figures: &Figures<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let is_known =
        |object| places::<T>().any(|(row, _, (other, _))| other == object && figures.total(row).is_some());
    let mut fields = Map::new();
    for (row, shown, (object, name)) in places::<T>() {
        let number = match shown.by {
            Some(_) => figures.by_value(row).map(|(value, it)| (value.to_owned(), it.into())).collect(),
            None => figures.total(row).map_or(Value::Null, Into::into),
        };
        match object {
            None => drop(fields.insert(name, number)),
            Some(_) if !is_known(object) => {}
            Some(object) => {
                let parts = fields.entry(object).or_insert_with(|| Map::new().into());
                parts.as_object_mut().and_then(|parts| parts.insert(name, number));
            }
        }
    }
    fields.serialize(serializer)
}

pub(crate) fn deserialize<'de, T: Figure + DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Figures<T>, D::Error> {
    let fields = Map::<String, Value>::deserialize(deserializer)?;
    let mut figures = Figures::default();
    for (row, _, (object, name)) in places::<T>() {
        let parts = object.map_or(Some(&fields), |object| fields.get(object)?.as_object());
        let mut set = |value: &str, number: &Value| {
            let number = T::deserialize(number).map_err(|it| D::Error::custom(format!("{name}: {it}")))?;
            figures.set(row, value, number);
            Ok(())
        };
        match parts.and_then(|parts| parts.get(&name)) {
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
        assert_eq!((&json["routed"], json.get("shadow")), (&7.into(), None));
        assert_eq!(json["rejected"], json!({"429": 2}));
        let streams = json!({"resumable": null, "resumed": 0, "cut": {}, "unresumable": {}});
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
