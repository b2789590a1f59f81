//! Every plugin type there is.

use serde::Deserialize;

use super::Plugin;

/// Declares the types, one a line: the variant, the parameters' struct, the reference's type name.
macro_rules! registry {
    ($($variant:ident = $name:literal,)*) => {
        /// A plugin of any type, read from `{type: …, parameters: {…}}`.
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(tag = "type", content = "parameters")]
        #[expect(missing_docs, reason = "each variant is documented at the plugin it holds")]
        pub enum AnyPlugin {
            $(#[serde(rename = $name)] $variant(super::$variant),)*
        }

        /// The type names, as a configuration writes them.
        pub const TYPES: &[&str] = &[$($name),*];

        impl AnyPlugin {
            /// The reference's name of the plugin's type.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }
        }

        impl core::ops::Deref for AnyPlugin {
            type Target = dyn Plugin;

            fn deref(&self) -> &Self::Target {
                match self { $(Self::$variant(plugin) => plugin,)* }
            }
        }

        $(impl From<super::$variant> for AnyPlugin {
            fn from(plugin: super::$variant) -> Self {
                Self::$variant(plugin)
            }
        })*
    };
}

registry! {
    AnthropicParser = "anthropic-parser",
    ApproxPrefixCacheProducer = "approx-prefix-cache-producer",
    KvCacheUtilizationScorer = "kv-cache-utilization-scorer",
    MaxScorePicker = "max-score-picker",
    NoHitLruScorer = "no-hit-lru-scorer",
    OpenaiParser = "openai-parser",
    PassthroughParser = "passthrough-parser",
    PrefixCacheScorer = "prefix-cache-scorer",
    QueueScorer = "queue-scorer",
    RunningRequestsSizeScorer = "running-requests-size-scorer",
    SglanghttpParser = "sglanghttp-parser",
    SingleProfileHandler = "single-profile-handler",
    TokenProducer = "token-producer",
    UtilizationDetector = "utilization-detector",
    VllmhttpParser = "vllmhttp-parser",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read_with_its_default_parameters() {
        for name in TYPES {
            let plugin: AnyPlugin =
                serde_json::from_value(serde_json::json!({"type": name, "parameters": {}})).unwrap();
            assert_eq!(plugin.type_name(), *name);
        }
    }

    #[test]
    fn an_unknown_type_is_refused_with_the_list_of_those_there_are() {
        let error =
            serde_json::from_str::<AnyPlugin>(r#"{"type": "magic-scorer", "parameters": {}}"#).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("magic-scorer") && TYPES.iter().all(|name| message.contains(name)),
            "{message}"
        );
    }

    #[test]
    fn an_unknown_parameter_is_refused() {
        for name in TYPES {
            let plugin = serde_json::json!({"type": name, "parameters": {"surely-not-a-parameter": 1}});
            assert!(serde_json::from_value::<AnyPlugin>(plugin).is_err(), "{name}");
        }
    }
}
