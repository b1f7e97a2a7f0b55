//! A job of Slurm on two nodes of one machine: it is requeued when its node is lost, and goes on from
//! its last epoch.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dormouse_system::{Root, proc};
use dormouse_tests::alone::alone;
use dormouse_tests::containers::{lacks, until};
use dormouse_tests::dormouse_path;
use dormouse_tests::program::compile;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The cluster's daemons and their directory.
struct Cluster {
    directory: PathBuf,
    daemons: Vec<(String, Child)>,
}

impl Cluster {
    fn start(directory: &Path) -> Self {
        let at = |name: &str| directory.join(name).display().to_string();
        fs::create_dir_all(directory.join("run")).expect("made");
        fs::create_dir_all(directory.join("state")).expect("made");
        // Munge wants no one else to be able to write where its socket is.
        for place in [directory.to_owned(), directory.join("run")] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            fs::set_permissions(place, mode).expect("set");
        }
        let key = directory.join("munge.key");
        let mut random = [0; 128];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .expect("random");
        fs::write(&key, random).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
        fs::set_permissions(&key, mode).expect("set");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = host.trim();
        let settings = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort=16817\n\
             AuthType=auth/munge\nAuthInfo=socket={}\nStateSaveLocation={}\nSlurmdSpoolDir={}\n\
             SlurmctldPidFile={}\nSlurmdPidFile={}\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             SlurmdTimeout=5\nKillWait=2\nReturnToService=2\nSwitchType=switch/none\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port=16821 CPUs=1 RealMemory=100\n\
             NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port=16822 CPUs=1 RealMemory=100\n\
             PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n",
            at("run/munge"),
            at("state"),
            at("spool.%n"),
            at("run/slurmctld.pid"),
            at("run/slurmd.%n.pid"),
        );
        fs::write(directory.join("slurm.conf"), settings).expect("written");
        let mut cluster = Self {
            directory: directory.to_owned(),
            daemons: Vec::new(),
        };
        let options = [
            ("--key-file", "munge.key"),
            ("--socket", "run/munge"),
            ("--pid-file", "run/munged.pid"),
            ("--log-file", "munged.log"),
            ("--seed-file", "munge.seed"),
        ];
        let options: Vec<String> = options
            .iter()
            .map(|(option, file)| format!("{option}={}", at(file)))
            .collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        cluster.daemon(
            "munged",
            "munged",
            &[&["--foreground", "--force"], &options[..]].concat(),
        );
        until("munge", || {
            directory.join("run/munge").exists().then_some(())
        });
        cluster.daemon("slurmctld", "slurmctld", &["-D", "-i"]);
        for node in ["n1", "n2"] {
            cluster.boot(node);
        }
        until("two idle nodes", || {
            (cluster.nodes() == "idle idle").then_some(())
        });
        cluster
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.directory.join("slurm.conf"));
        command
    }

    fn daemon(&mut self, name: &str, program: &str, words: &[&str]) {
        let log = self.directory.join(format!("{name}.out"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let child = self
            .command(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicated"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        self.daemons.push((name.to_owned(), child));
    }

    fn boot(&mut self, node: &str) {
        self.daemon(node, "slurmd", &["-D", "-N", node]);
    }

    fn said(&self, program: &str, words: &[&str]) -> String {
        let output = self.command(program).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn nodes(&self) -> String {
        let states = self.said("sinfo", &["--noheader", "--Node", "--format", "%t"]);
        states.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The node on which the job runs.
    fn node_of(&self, job: &str) -> Option<String> {
        let state = self.said(
            "squeue",
            &["--noheader", "--jobs", job, "--format", "%T %N"],
        );
        state.strip_prefix("RUNNING ").map(str::to_owned)
    }

    /// Everything of a node ends at once: its daemon and what that has started.
    fn lose(&mut self, node: &str) {
        let at = self.daemons.iter().position(|(name, _)| name == node);
        let (_, mut daemon) = self.daemons.remove(at.expect("a node"));
        // The step's daemon has left its parent, and its environment does not name its node: it is
        // the parent of what has.
        let mut lost: Vec<i32> = vec![daemon.id() as i32];
        let here = self.directory.display().to_string();
        let root = Root::host();
        for pid in proc::pids(&root) {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let of_node = environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == format!("SLURMD_NODENAME={node}").as_bytes());
            if !of_node || !String::from_utf8_lossy(&environment).contains(&here) {
                continue;
            }
            lost.push(pid);
            let parent = proc::stat(&root, pid).map_or(0, |stat| stat.parent);
            let command = fs::read_to_string(format!("/proc/{parent}/cmdline"));
            if command.is_ok_and(|command| command.starts_with("slurmstepd")) {
                lost.push(parent);
            }
        }
        for pid in lost {
            let _ = kill_process(Pid::from_raw(pid).expect("a PID"), Signal::KILL);
        }
        let _ = daemon.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.said("scancel", &["--full", "--signal", "KILL", "--user", "root"]);
        for (_, mut daemon) in self.daemons.drain(..).rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// The counter and the PID namespace of the newest line.
fn newest(log: &Path) -> Option<(u64, String)> {
    let text = fs::read_to_string(log).ok()?;
    let words: Vec<&str> = text.lines().last()?.split(' ').collect();
    match words[..] {
        [_, namespace, count] => Some((count.parse().ok()?, namespace.to_owned())),
        _ => None,
    }
}

#[test]
#[ignore = "make test-containers: Slurm's daemons, as root"]
fn a_job_goes_on_at_the_other_node_after_each_of_20_losses() {
    if lacks(&["slurmctld", "slurmd", "munged"]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().expect("a directory");
    let beat = compile(directory.path(), "beat.c");
    let log = directory.path().join("beats");
    let mut cluster = Cluster::start(&directory.path().join("slurm"));
    let script = directory.path().join("job.sh");
    let job = format!(
        "#!/bin/sh\nexport CLUSTER={}\nexec {} process run job-$SLURM_JOB_ID --store {} --lease 2s \
         --epoch-interval 500ms --accept-changed-files -- {} {}\n",
        cluster.directory.display(),
        dormouse_path().display(),
        directory.path().join("store").display(),
        beat.display(),
        log.display(),
    );
    fs::write(&script, job).expect("written");
    let output = directory.path().join("job.out").display().to_string();
    let job = cluster.said(
        "sbatch",
        &[
            "--parsable",
            "--requeue",
            "--open-mode=append",
            "--output",
            &output,
            &script.display().to_string(),
        ],
    );
    let losses = std::env::var("DORMOUSE_TEST_LOSSES").map_or(20, |n| n.parse().expect("a number"));
    for loss in 1..=losses {
        let node = until("a running job", || cluster.node_of(&job));
        let (from, run) = until("a running program", || newest(&log));
        // Far enough for an epoch of its own.
        let status = [
            "process",
            "status",
            &format!("job-{job}"),
            "--json",
            "--store",
        ]
        .map(str::to_owned);
        let store = directory.path().join("store").display().to_string();
        let epoch = || {
            let words: Vec<&str> = status
                .iter()
                .map(String::as_str)
                .chain([store.as_str()])
                .collect();
            let said = dormouse_tests::dormouse(&words);
            let value: serde_json::Value = serde_json::from_str(&said.stdout).ok()?;
            value["tracker"].as_object()?;
            value["store"]["epoch"]["number"].as_u64()
        };
        let first = until("an epoch", epoch);
        until("another epoch", || {
            epoch().filter(|epoch| *epoch > first + 1)
        });
        cluster.lose(&node);
        let (to, _) = newest(&log).expect("beats");
        until("the job to be requeued", || {
            cluster.said(
                "scontrol",
                &["update", &format!("JobId={job}"), "StartTime=now"],
            );
            cluster.node_of(&job).filter(|now| *now != node)
        });
        let (again, _) = until("the program at the other node", || {
            newest(&log).filter(|(_, now)| *now != run)
        });
        assert!(
            again > from,
            "loss {loss}: it went from {from} to {to}, and began again at {again}"
        );
        cluster.boot(&node);
        println!("loss {loss}: {to} when {node} was lost, goes on");
    }
    let said = fs::read_to_string(&output).unwrap_or_default();
    drop(cluster);
    assert!(!said.contains("cannot"), "{said}");
}
