//! The program of a container.

use super::environment::Environment;
use super::network::PodNetwork;
use super::volumes::Volumes;
use super::{Image, Kubelet};
use anyhow::{Result, ensure};
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::tools::root;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The user of the project's images, where a pod sets no other: `nonroot` of distroless images.
const IMAGE_USER: i64 = 65532;

/// Starts a container's program in the network of its pod; `attempt` keeps the log of the one before.
pub(super) async fn start(
    shared: &Kubelet,
    pod: &Pod,
    container: &Container,
    network: &PodNetwork,
    volumes: &Volumes,
    folder: &Path,
    attempt: u32,
) -> Result<Process> {
    let image = shared.image(container.image.as_deref().unwrap_or_default())?;
    let environment = Environment::read(shared, pod, container, network.address()).await?;
    let rootfs = folder.join(&container.name);
    fs::create_dir_all(&rootfs)?;
    let mount_list = folder.join(format!("{}.mounts", container.name));
    fs::write(mount_list, mounts(shared, image, container, volumes)?)?;

    let pod_security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let security = container.security_context.as_ref();
    let user = security.and_then(|security| security.run_as_user);
    let user = user.or(pod_security.and_then(|security| security.run_as_user)).unwrap_or(IMAGE_USER);
    let group = security.and_then(|security| security.run_as_group);
    let group = group.or(pod_security.and_then(|security| security.run_as_group)).unwrap_or(user);
    let is_read_only = security.and_then(|security| security.read_only_root_filesystem).unwrap_or(false);

    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let (namespace, name) = (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network.file().display()));
    command.args(["unshare", "--mount", "--uts"]).arg(root().join("tests/kube/container"));
    command.arg(&rootfs).arg(format!("{user}:{group}")).arg(name);
    command.arg(if is_read_only { "ro" } else { "rw" });
    match container.command.as_deref().filter(|command| !command.is_empty()) {
        Some(words) => command.args(words.iter().map(|word| environment.expand(word))),
        None => command.arg(image.path),
    };
    command.args(container.args.iter().flatten().map(|word| environment.expand(word)));
    command.env_clear().envs(&environment.0).current_dir("/");
    let log = shared.logs.join(format!("pod-{namespace}-{name}-{}-{attempt}.log", container.name));
    // Programs open it again as /dev/stdout, whoever's it is.
    fs::write(&log, "")?;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666))?;
    Process::start("a container", command, &log)
}

/// The lines for `tests/kube/container`.
fn mounts(shared: &Kubelet, image: &Image, container: &Container, volumes: &Volumes) -> Result<String> {
    let mut lines = String::new();
    for file in shared.namespace.name_files() {
        let name = file.file_name().unwrap_or_default().display();
        writeln!(lines, "{}\t/etc/{name}\tro", file.display())?;
    }
    writeln!(lines, "{}\t{}\tro", image.program.display(), image.path)?;
    for mount in container.volume_mounts.iter().flatten() {
        ensure!(mount.sub_path_expr.is_none(), "subPathExpr is not supported here");
        let mut source = volumes.path(&mount.name);
        if let Some(path) = &mount.sub_path {
            source.push(path);
        }
        ensure!(source.exists(), "there is no volume {} with {:?}", mount.name, mount.sub_path);
        let is_read_only = mount.read_only == Some(true);
        let target = mount.mount_path.trim_end_matches('/');
        writeln!(lines, "{}\t{target}\t{}", source.display(), if is_read_only { "ro" } else { "rw" })?;
    }
    Ok(lines)
}
