//! All tests of the workspace, each with the binary that it is in.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dormouse_tests::workspace;
use serde_json::Value;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// `package/binary::name`.
    pub id: String,
    pub binary: PathBuf,
    /// As the binary itself names it.
    pub name: String,
    /// Left out by `make test`.
    pub ignored: bool,
    /// The folder of its package: cargo runs it there.
    pub package: PathBuf,
}

/// A binary with tests.
struct Binary {
    id: String,
    path: PathBuf,
    package: PathBuf,
}

/// Builds the test binaries (of these packages; of all without a name) and lists what is in them. Examples in documentation comments are no
/// part of it: they have no binary.
pub fn tests(packages: &[String], with_ignored: bool) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    for binary in binaries(packages)? {
        let ignored = listed(&binary, &["--ignored"])?;
        for name in listed(&binary, &[])? {
            let ignored = ignored.contains(&name);
            if ignored && !with_ignored {
                continue;
            }
            tests.push(Test {
                id: format!("{}::{name}", binary.id),
                binary: binary.path.clone(),
                name,
                ignored,
                package: binary.package.clone(),
            });
        }
    }
    Ok(tests)
}

/// Those whose name contains one of the words in `only` (any name, without words) and none in `skip`.
pub fn chosen(tests: Vec<Test>, only: &[String], skip: &[String], ignored: bool) -> Vec<Test> {
    let has = |test: &Test, words: &[String]| words.iter().any(|word| test.id.contains(word));
    tests
        .into_iter()
        .filter(|test| only.is_empty() || has(test, only))
        .filter(|test| !has(test, skip) && (test.ignored || !ignored))
        .collect()
}

fn binaries(packages: &[String]) -> Result<Vec<Binary>, String> {
    let mut all = built(packages, &[])?;
    if packages.is_empty() || packages.iter().any(|name| name == "dormouse-tests") {
        // These run only where they are named.
        all.extend(built(packages, &["--test", "end_to_end"])?);
    }
    Ok(all)
}

fn built(packages: &[String], targets: &[&str]) -> Result<Vec<Binary>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["test", "--release", "--no-run"])
        .args(targets);
    match packages {
        [] => command.arg("--workspace"),
        some => command.args(some.iter().flat_map(|name| ["--package", name.as_str()])),
    };
    let output = command
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|why| format!("cargo: {why}"))?;
    if !output.status.success() {
        return Err("the tests do not build".into());
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(binary)
        .collect())
}

/// A test binary, from one of cargo's messages.
fn binary(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let package = manifest.parent()?.to_owned();
    let folder = package.strip_prefix(workspace()).unwrap_or(&package);
    let target = message["target"]["name"].as_str()?;
    Some(Binary {
        id: format!("{}/{target}", folder.display()),
        path,
        package,
    })
}

fn listed(binary: &Binary, words: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new(&binary.path)
        .args(["--list", "--format", "terse"])
        .args(words)
        .current_dir(&binary.package)
        .output()
        .map_err(|why| format!("{}: {why}", binary.path.display()))?;
    if !output.status.success() {
        return Err(format!("{} does not list its tests", binary.id));
    }
    Ok(names(&String::from_utf8_lossy(&output.stdout)))
}

fn names(list: &str) -> Vec<String> {
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tests_gives_their_names_and_nothing_else() {
        let list = "a::b: test\nc: bench\nlate_and_long: test\n\n2 tests, 1 benchmark\n";
        assert_eq!(names(list), ["a::b", "late_and_long"]);
    }

    #[test]
    fn only_binaries_of_tests_count() {
        let line = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{}/lab/Cargo.toml",
                "target":{{"name":"dormouse_lab"}},"profile":{{"test":{test}}},
                "executable":"/t/lab-1"}}"#,
                workspace().display()
            )
        };
        assert!(binary(&line(false)).is_none());
        let found = binary(&line(true)).unwrap();
        assert_eq!(found.id, "lab/dormouse_lab");
        assert_eq!(found.package, workspace().join("lab"));
        assert!(binary("not JSON").is_none());
    }
}
