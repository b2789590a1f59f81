//! Processor time and memory of a process and its children, from Linux' `/proc`. Envoy may be the child of
//! its launcher.

use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

/// The process itself, then all below it.
pub fn processes(root: u32) -> Result<Vec<u32>> {
    let mut found = vec![root];
    let mut looked_at = 0;
    while let Some(&process) = found.get(looked_at) {
        looked_at += 1;
        // Each thread has the children that it has started.
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.with_context(|| format!("threads of process {process}, which needs Linux"))? {
            let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                found.push(child.parse().context("a process id")?);
            }
        }
    }
    Ok(found)
}

/// A line of the process's status, by its name.
pub fn status(process: u32, name: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("no {name} in the status of process {process}"))?.trim().to_owned())
}

/// One that is an amount of memory, in bytes.
pub fn bytes(process: u32, name: &str) -> Result<u64> {
    let amount = status(process, name)?;
    let kibibytes = amount.strip_suffix(" kB").and_then(|amount| amount.parse::<u64>().ok());
    Ok(kibibytes.with_context(|| format!("{name} of process {process}: {amount}"))? * 1024)
}

/// Processor time, user and system, of all of them.
pub fn cpu_time(root: u32) -> Result<Duration> {
    processes(root)?.into_iter().map(own_cpu_time).sum()
}

fn own_cpu_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, the second field, may contain anything; 12 fields after it come user and system time.
    let (_, after_name) = stat.rsplit_once(") ").context("/proc/PID/stat without a name")?;
    let ticks = after_name.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>().context("/proc/PID/stat")?;
    // USER_HZ is 100 wherever Linux runs.
    Ok(Duration::from_millis(ticks * 10))
}

/// Bytes that the largest of them has for itself, in memory or swapped out. Pages of files, the program's own
/// among them, come and go with the kernel's needs and are left out.
pub fn taken(root: u32) -> Result<u64> {
    most(root, |process| Ok(bytes(process, "RssAnon")? + bytes(process, "VmSwap")?))
}

/// Maximum of open files of any of them, sockets included.
pub fn open_files(root: u32) -> Result<u64> {
    most(root, |process| Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64))
}

/// The most bytes that any of them ever had in memory.
pub fn peak(root: u32) -> Result<u64> {
    most(root, |process| bytes(process, "VmHWM"))
}

fn most(root: u32, amount: impl Fn(u32) -> Result<u64>) -> Result<u64> {
    let of_root = amount(root)?;
    // A child that has ended meanwhile has no memory and no files.
    let of_children = processes(root)?.into_iter().skip(1).filter_map(|child| amount(child).ok());
    Ok(of_children.fold(of_root, u64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::sync::mpsc;
    use std::thread;

    /// Ends with its handle.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn children_of_every_thread_are_found() {
        let (started, sleeper) = mpsc::channel();
        let (is_over, over) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            started.send(Sleeper(Command::new("sleep").arg("600").spawn().unwrap())).unwrap();
            // A child of a thread that ends goes over to another.
            over.recv().unwrap_err();
        });
        let sleeper = sleeper.recv().unwrap();
        let found = processes(std::process::id()).unwrap();
        assert_eq!(found[0], std::process::id());
        assert!(found.contains(&sleeper.0.id()), "{found:?}");
        drop(is_over);
        thread.join().unwrap();
    }

    #[test]
    fn memory_that_a_process_fills_counts() {
        let before = taken(std::process::id()).unwrap();
        let block = std::hint::black_box(vec![1u8; 16 << 20]);
        let with_block = taken(std::process::id()).unwrap();
        assert!(
            with_block >= before + (8 << 20),
            "{before} bytes, then {with_block} with {} more",
            block.len()
        );
    }
}
