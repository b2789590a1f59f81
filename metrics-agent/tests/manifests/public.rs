//! Verdicts of the agent on the EPP's public configurations, and on each type of plugins. `make check-epp`
//! prints them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::{fs, path::Path};

use endpoint_picker::epp_rules::EppRules;
use metrics_agent_catalogue::epp::Release;
use metrics_agent_catalogue::epp::types::{self, Here};
use metrics_agent_catalogue::{Options, Plan};

use crate::reading::{file, options};

const CONFIGURATIONS: &str = include_str!("../../../docs/reference/configurations.md");
const README: &str = include_str!("../../../README.md");
const FROM_THE_EPP: &str = include_str!("../../../docs/install/from-the-epp.md");

/// A public configuration, written again from its content.
struct Public {
    name: String,
    text: String,
}

/// A verdict.
struct Outcome {
    /// The releases of the EPP that read it, as far as names by version say.
    releases: String,
    /// The effect, for a table.
    effect: String,
    /// The effect in detail, line by line.
    details: Vec<String>,
    is_accepted: bool,
}

fn publics() -> Vec<Public> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/public");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    let documents =
        texts.flat_map(|text| text.split("\n---\n").skip(1).map(str::to_owned).collect::<Vec<_>>());
    let public = |text: String| {
        let (name, _) = text.strip_prefix("# ").and_then(|text| text.split_once(": ")).expect(&text);
        Public { name: name.to_owned(), text }
    };
    documents.map(public).collect()
}

impl Public {
    fn read(&self, epp_rules: EppRules) -> Result<Plan, String> {
        let options = Options { epp_rules, allow_experimental_plugins: true, ..options() };
        Plan::read(&[file("m.yaml", &self.text)], &options)
            .map_err(|problems| problems.to_string().replace("m.yaml: document 1: ", ""))
    }

    /// Its types that decide in one of the ways that `how` finds, each once, with the text of the way.
    fn types(&self, how: impl Fn(Here) -> Option<&'static str>) -> Vec<(&str, &'static str)> {
        let all = self.text.split("{type: ").skip(1).filter_map(|rest| rest.split([',', '}']).next());
        let mut found = Vec::new();
        for name in all {
            let text = types::find(name).and_then(|it| how(it.here));
            if let Some(text) = text.filter(|_| found.iter().all(|(other, _)| *other != name)) {
                found.push((name, text));
            }
        }
        found
    }

    fn outcome(&self) -> Outcome {
        let reads = |release: &Release| {
            let rules = EppRules::read(release.as_str()).unwrap();
            let problems = self.read(rules).err().unwrap_or_default();
            !problems.contains("is removed in v0.1") && !problems.contains("is in the EPP since v0.1")
        };
        let releases: Vec<&str> = Release::ALL.into_iter().filter(reads).map(Release::as_str).collect();
        let releases = releases.join(", ");
        let plan = match self.read(EppRules::Own) {
            Ok(plan) => plan,
            Err(problems) => {
                let refused =
                    self.types(|here| if let Here::Refused(text) = here { Some(text) } else { None });
                let effect = if refused.is_empty() { problems.clone() } else { names(&refused) };
                let details = problems.lines().map(str::to_owned).collect();
                return Outcome {
                    releases: "–".to_owned(),
                    effect: format!("refused: {effect}"),
                    details,
                    is_accepted: false,
                };
            }
        };
        let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
        let mut approximate =
            self.types(|here| if let Here::Approximate(text) = here { Some(text) } else { None });
        if warnings.iter().any(|warning| warning.contains("tokens are estimated")) {
            approximate.push(("token-producer", "four bytes count as a token, and no server is asked"));
        }
        let idle = self.types(|here| if let Here::WithoutEffect(text) = here { Some(text) } else { None });
        let differs = self.types(|here| if let Here::Differs(text) = here { Some(text) } else { None });
        let mut parts = Vec::new();
        let equal = if approximate.is_empty() { "equal" } else { "approximate: " };
        let but = if differs.is_empty() { String::new() } else { format!(", but for {}", names(&differs)) };
        parts.push(format!("{equal}{}{but}", names(&approximate)));
        parts.extend((!idle.is_empty()).then(|| format!("without effect: {}", names(&idle))));
        let config = plan.pools[0].policy.picker_config.as_ref();
        let queues = config.is_some_and(|config| config.flow_control.is_some());
        parts.extend(queues.then(|| "native module only".to_owned()));
        let groups = [("approximate", &approximate), ("without effect", &idle), ("differs", &differs)];
        let details = groups.into_iter().flat_map(|(group, types)| {
            types.iter().map(move |(name, text)| format!("{group}: {name}: {text}"))
        });
        Outcome { releases, effect: parts.join("; "), details: details.collect(), is_accepted: true }
    }
}

fn names(types: &[(&str, &str)]) -> String {
    types.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The tables of the page have each public configuration in the row of its effect, and README counts them.
#[test]
fn public_configurations_have_the_effects_of_the_page() {
    let mut rows: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let (mut accepted, all) = (0, publics());
    for public in &all {
        let outcome = public.outcome();
        let verdict = if outcome.is_accepted { "accepted" } else { "refused" };
        println!("{}: {verdict}: {}", public.name, outcome.effect);
        outcome.details.iter().for_each(|detail| println!("    {detail}"));
        accepted += usize::from(outcome.is_accepted);
        rows.entry((outcome.effect, outcome.releases)).or_default().push(format!("`{}`", public.name));
    }
    let mut table = String::new();
    for ((effect, releases), names) in &rows {
        writeln!(table, "| {} | {releases} | {effect} |", names.join(", ")).unwrap();
    }
    println!("{accepted} of {} public configurations are accepted", all.len());
    let missing: Vec<&str> = table.lines().filter(|row| !CONFIGURATIONS.contains(*row)).collect();
    let have = CONFIGURATIONS.lines().filter(|line| line.starts_with("| `")).count();
    let want = rows.len();
    assert!(missing.is_empty() && have == want, "configurations.md has to have exactly the rows\n{table}");
    let text = format!("{accepted} of {} public configurations", all.len());
    assert!(README.contains(&text), "README.md lacks {text:?}");
}

/// The page for users of the EPP names each type that a release has and the other has not.
#[test]
fn types_of_one_release_alone_are_on_the_page_for_users_of_the_epp() {
    let [older, newer] = Release::ALL.map(|release| types::of(release).map(|it| it.name).collect::<Vec<_>>());
    let mut of_one = older.iter().filter(|name| !newer.contains(name)).collect::<Vec<_>>();
    of_one.extend(newer.iter().filter(|name| !older.contains(name)));
    assert_eq!(of_one.len(), 14, "{of_one:?}");
    let (_, section) = FROM_THE_EPP.split_once("\n## v0.10 or v0.11\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    for name in of_one {
        assert!(section.contains(&format!("`{name}`")), "from-the-epp.md lacks {name}");
    }
}

/// The pages count the types of each release by how they decide.
#[test]
fn types_of_each_release_are_counted_on_the_pages() {
    for release in Release::ALL {
        let mut counts = [0; 5];
        let mut all = 0;
        for it in types::of(release) {
            let place = match it.here {
                Here::Equal => 0,
                Here::Differs(_) => 1,
                Here::Approximate(_) => 2,
                Here::WithoutEffect(_) => 3,
                Here::Refused(_) => 4,
            };
            counts[place] += 1;
            all += 1;
            if let Here::Differs(text)
            | Here::Approximate(text)
            | Here::WithoutEffect(text)
            | Here::Refused(text) = it.here
            {
                println!("{} {}: {text}", release.as_str(), it.name);
            }
        }
        let [equal, differs, approximate, idle, refused] = counts;
        let row = format!(
            "| {} | {all} | {equal} | {differs} | {approximate} | {idle} | {refused} |",
            release.as_str()
        );
        println!("{row}");
        assert!(CONFIGURATIONS.contains(&row), "configurations.md lacks {row:?}");
        let text = format!("{} of the {all} plugin types of the EPP's {}", all - refused, release.as_str());
        assert!(README.contains(&text), "README.md lacks {text:?}");
        assert!(FROM_THE_EPP.contains(&text), "from-the-epp.md lacks {text:?}");
    }
}
