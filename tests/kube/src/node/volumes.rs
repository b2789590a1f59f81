//! The volumes of a pod as folders. Files of objects follow their changes, as the kubelet's do: a new version
//! is complete before a link leads to it.

use super::Kubelet;
use super::environment::field_value;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount, ServiceAccountTokenProjection,
    Volume,
};
use kube::Api;
use kube::api::PostParams;
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The content of a volume, by the paths of its files.
type Files = BTreeMap<String, Vec<u8>>;

/// The volumes of a pod.
#[derive(Debug)]
pub(super) struct Volumes {
    folder: PathBuf,
    address: Ipv4Addr,
    /// Volumes by name, with the number of the version; empty ones are not in it.
    written: BTreeMap<String, (Files, u32)>,
    /// Requested once: tokens live for an hour, longer than any test.
    tokens: BTreeMap<String, Vec<u8>>,
}

impl Volumes {
    /// Makes them; an error when an object is missing or a kind is not supported.
    pub(super) async fn create(
        shared: &Kubelet,
        pod: &Pod,
        folder: PathBuf,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let mut volumes = Self { folder, address, written: BTreeMap::new(), tokens: BTreeMap::new() };
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            fs::create_dir_all(volumes.path(&volume.name))?;
            if volume.empty_dir.is_some() {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(volumes.path(&volume.name), fs::Permissions::from_mode(0o777))?;
            }
        }
        volumes.refresh(shared, pod).await?;
        Ok(volumes)
    }

    /// The folder of a volume.
    pub(super) fn path(&self, volume: &str) -> PathBuf {
        self.folder.join(volume)
    }

    /// Writes what has changed.
    pub(super) async fn refresh(&mut self, shared: &Kubelet, pod: &Pod) -> Result<()> {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            // What an image has does not change.
            let is_complete = volume.image.is_some() && self.written.contains_key(&volume.name);
            if volume.empty_dir.is_some() || is_complete {
                continue;
            }
            let files =
                self.read(shared, pod, volume).await.with_context(|| format!("volume {}", volume.name))?;
            let version = match self.written.get(&volume.name) {
                Some((written, _)) if *written == files => continue,
                Some((_, version)) => version + 1,
                None => 0,
            };
            write(&self.path(&volume.name), version, &files)?;
            self.written.insert(volume.name.clone(), (files, version));
        }
        Ok(())
    }

    async fn read(&mut self, shared: &Kubelet, pod: &Pod, volume: &Volume) -> Result<Files> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(source) = &volume.image {
            let image = shared.image(source.reference.as_deref().unwrap_or_default())?;
            let content = fs::read(&image.program)?;
            return Ok(Files::from([(image.path.trim_start_matches('/').to_owned(), content)]));
        }
        if let Some(source) = &volume.config_map {
            return config_map(shared, namespace, &source.name, source.items.as_deref(), source.optional)
                .await;
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            return secret(shared, namespace, name, source.items.as_deref(), source.optional).await;
        }
        if let Some(source) = &volume.downward_api {
            return downward(pod, source.items.as_deref(), self.address);
        }
        let Some(projected) = &volume.projected else { bail!("its kind is not supported here") };
        let mut files = Files::new();
        for source in projected.sources.iter().flatten() {
            if let Some(source) = &source.service_account_token {
                let token = self.token(shared, pod, source).await.context("the ServiceAccount's token")?;
                files.insert(source.path.clone(), token);
            } else if let Some(source) = &source.config_map {
                let (items, optional) = (source.items.as_deref(), source.optional);
                files.extend(config_map(shared, namespace, &source.name, items, optional).await?);
            } else if let Some(source) = &source.secret {
                let (items, optional) = (source.items.as_deref(), source.optional);
                files.extend(secret(shared, namespace, &source.name, items, optional).await?);
            } else if let Some(source) = &source.downward_api {
                files.extend(downward(pod, source.items.as_deref(), self.address)?);
            } else {
                bail!("one of its sources is not supported here");
            }
        }
        Ok(files)
    }

    async fn token(
        &mut self,
        shared: &Kubelet,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
    ) -> Result<Vec<u8>> {
        if let Some(token) = self.tokens.get(&source.path) {
            return Ok(token.clone());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: source.audience.iter().cloned().collect(),
                expiration_seconds: source.expiration_seconds,
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(shared.client.clone(), namespace);
        let answer = accounts
            .create_token_request(account.unwrap_or("default"), &PostParams::default(), &request)
            .await?;
        let token = answer.status.context("no token in the answer")?.token.into_bytes();
        self.tokens.insert(source.path.clone(), token.clone());
        Ok(token)
    }
}

async fn config_map(
    shared: &Kubelet,
    namespace: &str,
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<Files> {
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), namespace);
    let Some(map) = maps.get_opt(name).await? else { return missing("ConfigMap", name, optional) };
    let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    let bytes = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
    select(text.chain(bytes).collect(), items, optional)
}

async fn secret(
    shared: &Kubelet,
    namespace: &str,
    name: &str,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<Files> {
    let secrets: Api<Secret> = Api::namespaced(shared.client.clone(), namespace);
    let Some(secret) = secrets.get_opt(name).await? else { return missing("Secret", name, optional) };
    select(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect(), items, optional)
}

fn missing(kind: &str, name: &str, optional: Option<bool>) -> Result<Files> {
    match optional {
        Some(true) => Ok(Files::new()),
        _ => bail!("there is no {kind} {name}"),
    }
}

/// The named keys at their paths; all keys without a list.
fn select(mut data: Files, items: Option<&[KeyToPath]>, optional: Option<bool>) -> Result<Files> {
    let Some(items) = items.filter(|items| !items.is_empty()) else { return Ok(data) };
    let mut files = Files::new();
    for item in items {
        match data.remove(&item.key) {
            Some(content) => drop(files.insert(item.path.clone(), content)),
            None if optional == Some(true) => {}
            None => bail!("there is no key {}", item.key),
        }
    }
    Ok(files)
}

fn downward(pod: &Pod, items: Option<&[DownwardAPIVolumeFile]>, address: Ipv4Addr) -> Result<Files> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let field = item.field_ref.as_ref().context("only fields are supported here")?;
        files.insert(item.path.clone(), field_value(pod, &field.field_path, address)?.into_bytes());
    }
    Ok(files)
}

/// Writes a version of a volume: the files into a folder of the version, `..data` as a link to it, and each
/// name as a link through that.
fn write(volume: &Path, version: u32, files: &Files) -> Result<()> {
    let name = format!("..{version}");
    for (path, content) in files {
        let file = volume.join(&name).join(path);
        fs::create_dir_all(file.parent().context("a path without a folder")?)?;
        fs::write(file, content)?;
    }
    fs::create_dir_all(volume.join(&name))?;
    symlink(&name, volume.join("..new"))?;
    fs::rename(volume.join("..new"), volume.join("..data"))?;
    for path in files.keys() {
        let first = path.split('/').next().unwrap_or(path);
        let link = volume.join(first);
        if link.symlink_metadata().is_err() {
            symlink(Path::new("..data").join(first), link)?;
        }
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        // A link whose file is gone, and the version before.
        let is_old = entry
            .file_name()
            .to_string_lossy()
            .strip_prefix("..")
            .is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number != version));
        if is_old {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_type()?.is_symlink() && !entry.path().exists() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Files, write};
    use std::fs;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_new_version_replaces_all_files() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 0, &files(&[("a.yaml", "1"), ("old", "x"), ("sub/b", "2")])).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("sub/b")).unwrap(), "2");
        write(folder.path(), 1, &files(&[("a.yaml", "3"), ("new", "y")])).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a.yaml")).unwrap(), "3");
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["..1", "..data", "a.yaml", "new"]);
    }
}
