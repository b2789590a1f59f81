//! Cost of the agent with 100 endpoints, a text from each every 50 ms, and one filter that polls. The texts
//! have 60 KB at first, then only the few lines that the agent reads of them.
//!
//! The aim is at most 0.3 core and 60 MiB. The servers and the filter are this process, the agent is another
//! one. With `OTHER_AGENT=PATH` another build of the agent is measured too, in turns.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ENDPOINTS: usize = 100;
const TEXT_BYTES: usize = 60_000;
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(10);
const CAPTURE: &str = include_str!("../tests/captures/vllm-0.32.0-lora-busy.prom");
const SHORT_TEXT: &str = include_str!("short.prom");

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    // `cargo test --benches` runs benches without this argument, to see that they work.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let other = std::env::var("OTHER_AGENT").ok();
    let agents = [("this", Some(env!("CARGO_BIN_EXE_metrics-agent"))), ("other", other.as_deref())];
    println!("endpoints  text B  scrapes/s  core   us/scrape  RSS MiB  peak MiB  agent");
    for text in [long_text(), SHORT_TEXT.to_owned()] {
        let endpoints = serve_all(Vec::leak(answer(&text))).await?;
        for (name, binary) in agents {
            if let Some(binary) = binary {
                println!("{ENDPOINTS:9}  {:6}  {}  {name}", text.len(), measure(binary, &endpoints).await?);
            }
        }
    }
    Ok(())
}

/// Measures one agent.
async fn measure(binary: &str, endpoints: &[String]) -> Outcome<String> {
    let mut command = Command::new(binary);
    command.args(["--listen", "127.0.0.1:0", "--log", "warn"]);
    command.args(endpoints.iter().flat_map(|endpoint| ["--endpoint", endpoint]));
    let mut agent = Agent(command.stdout(Stdio::piped()).spawn()?);
    let mut first_line = String::new();
    BufReader::new(agent.0.stdout.take().ok_or("no standard output")?).read_line(&mut first_line)?;
    let address = first_line.trim().strip_prefix("listening on ").ok_or("no address")?.to_owned();
    tokio::spawn(poll(address.clone()));

    tokio::time::sleep(WARM_UP).await;
    let (scrapes, cpu, started) = (scrapes(&address).await?, agent.cpu()?, Instant::now());
    tokio::time::sleep(MEASURED).await;
    let took = started.elapsed().as_secs_f64();
    let scrapes = (self::scrapes(&address).await? - scrapes) / took;
    let core = (agent.cpu()? - cpu) / took;
    Ok(format!(
        "{scrapes:9.0}  {core:.3}  {:9.1}  {:7.1}  {:8.1}",
        core / scrapes * 1e6,
        agent.state("VmRSS")?,
        agent.state("VmHWM")?,
    ))
}

/// A recorded text, filled up with its own longest histogram's lines.
fn long_text() -> String {
    let mut text = CAPTURE.to_owned();
    for line in CAPTURE.lines().filter(|line| line.contains("_bucket")).cycle() {
        if text.len() >= TEXT_BYTES {
            break;
        }
        text += line;
        text += "\n";
    }
    text
}

fn answer(text: &str) -> Vec<u8> {
    let bytes = text.len();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length:";
    format!("{head} {bytes}\r\n\r\n{text}").into_bytes()
}

/// Servers that all send this response; they stay until the process ends.
async fn serve_all(answer: &'static [u8]) -> Outcome<Vec<String>> {
    let mut endpoints = Vec::new();
    for _ in 0..ENDPOINTS {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        endpoints.push(listener.local_addr()?.to_string());
        tokio::spawn(serve(listener, answer));
    }
    Ok(endpoints)
}

async fn serve(listener: TcpListener, answer: &'static [u8]) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = [0; 1024];
            // The agent sends small requests one at a time, so each read is one request.
            while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                if stream.write_all(answer).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Polls as the filter does: one request after the other, each with the versions of the last response.
async fn poll(address: String) -> Option<()> {
    let mut versions = (0, 0);
    loop {
        let (topology, readings) = versions;
        let path = format!("/v1/pools/default/snapshot?topology={topology}&readings={readings}&wait_ms=1000");
        let body = get(&address, &path).await.ok()?;
        if let Ok(snapshot) = endpoint_picker_wire::decode(&body) {
            versions = (snapshot.topology_version, snapshot.readings_version);
        }
    }
}

async fn scrapes(address: &str) -> Outcome<f64> {
    let text = String::from_utf8(get(address, "/metrics").await?)?;
    let line = text.lines().find_map(|line| line.strip_prefix("metrics_agent_scrapes_total "));
    Ok(line.ok_or("no such metric")?.parse()?)
}

async fn get(address: &str, path: &str) -> Outcome<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nhost: metrics-agent\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or("no head")?;
    Ok(answer.split_off(head + 4))
}

struct Agent(Child);

impl Agent {
    /// Seconds of processor time, user and system.
    fn cpu(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let after_name = stat.rsplit_once(") ").ok_or("no stat")?.1;
        let ticks: Vec<f64> =
            after_name.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        // USER_HZ is 100 wherever Linux runs.
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }

    /// A line of /proc/PID/status, in MiB.
    fn state(&self, key: &str) -> Outcome<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|line| line.starts_with(key)).ok_or("no such line")?;
        Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse::<f64>()? / 1024.0)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
