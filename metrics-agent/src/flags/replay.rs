//! Flags of `metrics-agent replay`.

use core::time::Duration;
use std::fs::File;
use std::io::{BufReader, Read};
use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::Args;
use endpoint_picker_wire::NamedRules;
use metrics_agent_replay::fit::{Fit, Given};
use metrics_agent_replay::record::Record;
use metrics_agent_replay::rules;
use metrics_agent_replay::simulation::fleet::{Fleet, ServerKind};
use metrics_agent_replay::simulation::pickers::Mechanism;

use super::values::{self, FlagError, RulesChoice};

/// Flags of `metrics-agent replay`.
#[derive(Args, Debug)]
pub struct ReplayFlags {
    /// A record: the picker's, JSON lines in Mooncake's form, CSV in Azure's, `AgentX`'s sessions, or the
    /// access log of the shipped envoy.yaml. Several files are read one behind another.
    #[arg(required = true)]
    record: Vec<PathBuf>,

    /// Rules to compare: expected-latency, epp, or a file with an `EndpointPickerConfig`. May be repeated;
    /// without it, expected-latency and epp.
    #[arg(long, value_name = "expected-latency|epp|FILE", value_parser = values::rules)]
    rules: Vec<RulesChoice>,

    /// Number of seeds: of random numbers, and from the second on of shifts of up to a second in the times of
    /// requests. The table shows medians and ranges.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,

    /// Servers to replay on: their number, or how many more (+2) or fewer (-1). New ones are as fast as the
    /// fleet's median. A record without endpoints has 8.
    #[arg(long, value_name = "N|+N|-N", allow_hyphen_values = true, value_parser = servers)]
    servers: Option<Servers>,

    /// The speed of an endpoint as a multiple of the recorded one, by the beginning of its address; may be
    /// repeated.
    #[arg(long, value_name = "ENDPOINT=FACTOR", value_parser = speed)]
    speed: Vec<(String, f64)>,

    /// Requests at a time, as a multiple of the recorded ones.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub load: f64,

    /// A limit for the first token, such as 2s: the table has the share of requests that keep it.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub limit: Option<Duration>,

    /// Prompt tokens that a server reads in a second, in place of the fitted number; 25000 where the record
    /// has no times.
    #[arg(long, value_name = "N", value_parser = positive)]
    prefill_tokens_per_second: Option<f64>,

    /// Time of a step that makes a token for one request, in place of the fitted one; 8 where the record has
    /// no times.
    #[arg(long, value_name = "MS", value_parser = positive)]
    step_ms: Option<f64>,

    /// Tokens in the cache of a server, in place of the fitted number; 400000 where the record does not show
    /// it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cache_tokens: Option<u32>,

    /// Requests that a server works on at a time, in place of the fitted number; 256 where the record does
    /// not show it.
    #[arg(long, value_name = "N")]
    max_num_seqs: Option<NonZeroU16>,

    /// Threads, by default one for each processor.
    #[arg(long, value_name = "N")]
    replay_threads: Option<NonZeroU16>,

    /// Print JSON instead of the table.
    #[arg(long)]
    pub json: bool,

    /// Write the table with charts to this file, a page that loads nothing.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Servers of a replay.
#[derive(Clone, Copy, Debug)]
enum Servers {
    Number(u16),
    More(u16),
    Fewer(u16),
}

/// Servers of a record without endpoints.
const SERVERS: u16 = 8;

impl ReplayFlags {
    /// Reads the record.
    pub fn record(&self) -> Result<Record, FlagError> {
        let mut files: Box<dyn Read> = Box::new(std::io::empty());
        for path in &self.record {
            let file = File::open(path).map_err(|error| FlagError(format!("{}: {error}", path.display())))?;
            files = Box::new(files.chain(file));
        }
        let first = self.record.first().map(|path| path.display().to_string()).unwrap_or_default();
        Record::read(BufReader::new(files)).map_err(|error| FlagError(format!("{first}: {error}")))
    }

    /// Numbers of the flags about servers.
    pub fn given(&self) -> Given {
        Given {
            prefill_per_second: self.prefill_tokens_per_second,
            step: self.step_ms.map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3)),
            cache_tokens: self.cache_tokens,
            max_running: self.max_num_seqs.map(|number| usize::from(number.get())),
        }
    }

    /// Servers of a record without endpoints.
    pub fn servers_without_names(&self) -> usize {
        match self.servers {
            Some(Servers::Number(number)) => number.into(),
            None | Some(Servers::More(_) | Servers::Fewer(_)) => SERVERS.into(),
        }
    }

    /// The servers that the rules get.
    pub fn fleet(&self, record: &Record, fit: &Fit) -> Result<Fleet, FlagError> {
        let mut fleet = fit.fleet.clone();
        for (name, factor) in &self.speed {
            let named =
                record.servers.iter().zip(&mut fleet.servers).filter(|(own, _)| own.starts_with(name));
            let changed = named.map(|(_, server)| server.slowness /= factor).count();
            if changed == 0 {
                return Err(FlagError(format!("--speed {name}: the record has no such endpoint")));
            }
        }
        let number = fleet.servers.len();
        let wanted = match self.servers {
            None => number,
            Some(Servers::Number(wanted)) => wanted.into(),
            Some(Servers::More(more)) => number + usize::from(more),
            Some(Servers::Fewer(fewer)) => number.saturating_sub(fewer.into()),
        };
        if !(1..=1_000).contains(&wanted) {
            return Err(FlagError(format!("--servers: {wanted} servers; allowed are 1 to 1000")));
        }
        let mut speeds: Vec<f64> = fleet.servers.iter().map(|server| server.slowness).collect();
        speeds.sort_by(f64::total_cmp);
        let median = speeds.get(speeds.len() / 2).copied().unwrap_or(1.0);
        fleet.servers.resize(wanted, ServerKind::new(median, fleet.times.kv_blocks));
        Ok(fleet)
    }

    /// The rules, by name.
    pub fn rules(&self) -> Result<Vec<(String, Mechanism)>, FlagError> {
        let all = NamedRules::ALL.map(RulesChoice::Named);
        let rules = if self.rules.is_empty() { &all[..] } else { &self.rules[..] };
        rules.iter().map(rule).collect()
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        self.replay_threads.map_or_else(all, |threads| threads.get().into())
    }
}

fn rule(rules: &RulesChoice) -> Result<(String, Mechanism), FlagError> {
    let (name, policy) = match rules {
        RulesChoice::Named(rules) => (rules.as_str().to_owned(), rules::named(*rules)),
        RulesChoice::File(path) => {
            let name = path.display().to_string();
            let bytes = std::fs::read(path).map_err(|error| FlagError(format!("{name}: {error}")))?;
            let policy = rules::read(path, &bytes).map_err(|problems| FlagError(problems.to_string()))?;
            (name, policy)
        }
    };
    let policy = policy.ok_or_else(|| FlagError(format!("{name}: no pool has these rules")))?;
    Ok((name, rules::mechanism(policy)))
}

fn servers(text: &str) -> Result<Servers, String> {
    let number = |digits: &str| digits.parse::<u16>().ok().filter(|number| *number > 0);
    let servers = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(digits), _) => number(digits).map(Servers::More),
        (_, Some(digits)) => number(digits).map(Servers::Fewer),
        (None, None) => number(text).map(Servers::Number),
    };
    servers.ok_or_else(|| "allowed is a number such as 4, +2 or -1".to_owned())
}

fn speed(text: &str) -> Result<(String, f64), String> {
    let (name, factor) =
        text.rsplit_once('=').ok_or("allowed is ENDPOINT=FACTOR, such as 10.0.0.1:8000=2")?;
    Ok((name.to_owned(), self::factor(factor)?))
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.01..=100.0).contains(number));
    number.ok_or_else(|| "allowed is a number from 0.01 to 100".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (1e-3..=1e9).contains(number));
    number.ok_or_else(|| "allowed is a number from 0.001 to 1000000000".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use metrics_agent_replay::fit;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: ReplayFlags,
    }

    /// The speeds of the servers that these flags give, of two recorded ones.
    fn speeds(flags: &[&str]) -> Result<Vec<f64>, String> {
        let arguments = ["replay", "record"].iter().chain(flags);
        let flags = Command::try_parse_from(arguments).map_err(|error| error.to_string())?.flags;
        let line = |endpoint: u8| {
            format!(
                r#"{{"timestamp":0,"input_length":1,"output_length":1,"endpoint":"10.0.0.{endpoint}:8000"}}"#
            )
        };
        let record = Record::read([line(1), line(2)].join("\n").as_bytes()).unwrap();
        let fit = fit::fit(&record, &flags.given(), flags.servers_without_names());
        let fleet = flags.fleet(&record, &fit).map_err(|error| error.to_string())?;
        Ok(fleet.servers.iter().map(|server| 1.0 / server.slowness).collect())
    }

    #[test]
    fn flags_change_the_recorded_servers() {
        assert_eq!(speeds(&[]).unwrap(), [1.0, 1.0]);
        assert_eq!(speeds(&["--servers", "+2"]).unwrap().len(), 4);
        assert_eq!(speeds(&["--servers", "-1"]).unwrap().len(), 1);
        assert_eq!(speeds(&["--servers", "3", "--speed", "10.0.0.2=2"]).unwrap(), [1.0, 2.0, 1.0]);
        for (flags, problem) in [
            (&["--servers", "-2"][..], "0 servers; allowed are 1 to 1000"),
            (&["--servers", "some"], "allowed is a number such as 4, +2 or -1"),
            (&["--speed", "10.0.0.3=2"], "the record has no such endpoint"),
            (&["--speed", "2"], "allowed is ENDPOINT=FACTOR"),
            (&["--load", "0"], "allowed is a number from 0.01 to 100"),
            (&["--rules", "eppp"], "allowed are expected-latency, epp, and a file"),
        ] {
            let refusal = speeds(flags).unwrap_err();
            assert!(refusal.contains(problem), "{refusal}");
        }
    }

    #[test]
    fn rules_are_named_or_read_from_a_file() {
        let rules = |flags: &[&str]| {
            let arguments = ["replay", "record"].iter().chain(flags);
            let rules = Command::try_parse_from(arguments).unwrap().flags.rules();
            rules.map(|rules| rules.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(rules(&[]).unwrap(), ["expected-latency", "epp"]);
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/choosing/expected-latency.yaml");
        assert_eq!(rules(&["--rules", "epp", "--rules", example]).unwrap(), ["epp", example]);
        assert!(rules(&["--rules", "missing.yaml"]).unwrap_err().to_string().starts_with("missing.yaml: "));
    }
}
