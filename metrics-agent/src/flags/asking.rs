//! Which agent a command asks.

use clap::Args;
use hyper::Uri;

use super::values::agent;
use crate::fetch::Agent;

/// Which agent a command asks.
#[derive(Args, Debug)]
pub struct AskFlags {
    /// The agent to ask.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9095", value_parser = agent)]
    agent: Uri,

    /// The pool; needed when the agent has several.
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
}

impl AskFlags {
    /// The agent.
    pub fn agent(&self) -> Agent {
        Agent { url: self.agent.clone() }
    }
}
