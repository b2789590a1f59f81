//! Which agent a command asks.

use core::error::Error;
use std::path::PathBuf;

use clap::Args;
use hyper::Uri;
use rustls::pki_types::ServerName;

use super::error::FlagError;
use super::values::{agent, server_name};
use crate::commands::agent_client::Agent;
use crate::scrape::credentials::{Files, Trust};

/// Which agent a command asks.
#[derive(Args, Debug)]
pub struct AskFlags {
    /// The agent to ask, as a URL or as HOST:PORT, which is asked over http; https needs --agent-ca.
    #[arg(long, value_name = "URL|HOST:PORT", default_value = "http://127.0.0.1:9095", value_parser = agent)]
    agent: Uri,

    /// The pool; needed when the agent has several.
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,

    /// Authorities of the agent's certificate, in PEM.
    #[arg(long, value_name = "PATH")]
    agent_ca: Option<PathBuf>,

    /// The name that the agent's certificate must carry; without it that of the URL.
    #[arg(long, value_name = "NAME", requires = "agent_ca", value_parser = server_name)]
    agent_server_name: Option<ServerName<'static>>,

    /// Certificate chain to show to the agent, in PEM.
    #[arg(long, value_name = "PATH", requires = "agent_key", requires = "agent_ca")]
    agent_cert: Option<PathBuf>,

    /// Key of --agent-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "agent_cert")]
    agent_key: Option<PathBuf>,

    /// A file whose first line is the token to show to the agent (`authorization: Bearer …`).
    #[arg(long, value_name = "PATH")]
    agent_token_file: Option<PathBuf>,
}

impl AskFlags {
    /// The agent, with what it is shown.
    pub async fn agent(&self) -> Result<Agent, Box<dyn Error>> {
        let is_secured = self.agent.scheme_str() == Some("https");
        if is_secured != self.agent_ca.is_some() {
            let problem = "--agent https://… and --agent-ca go together: one needs the other";
            return Err(FlagError(problem.to_owned()).into());
        }
        let files = Files {
            trust: self.agent_ca.clone().map(Trust::Authorities),
            certificate_and_key: self.agent_cert.clone().zip(self.agent_key.clone()),
            server_name: self.agent_server_name.clone(),
            token: self.agent_token_file.clone(),
        };
        Ok(Agent { url: self.agent.clone(), shown: files.read().await? })
    }
}
