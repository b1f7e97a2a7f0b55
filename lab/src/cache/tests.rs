//! The cache: keys, artefacts, garbage.

use super::*;

fn key(value: &str) -> Key {
    let mut key = Key::new();
    key.text("value", value);
    key
}

#[test]
fn a_failed_build_is_never_taken_for_an_artefact() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let result = cache.make("kind", &key("a"), |work| {
        fs::write(work.join("half"), "half").unwrap();
        Err(CacheError::NoHome)
    });
    assert!(result.is_err());
    assert_eq!(cache.artefact("kind", &key("a")), None);
    assert_eq!(
        fs::read_dir(folder.path().join("temporary"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn the_same_inputs_find_the_same_artefact_and_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let made = cache
        .make("kind", &key("a"), |work| {
            fs::write(work.join("result"), "whole").map_err(failed("write", work))
        })
        .unwrap();
    assert_eq!(cache.artefact("kind", &key("a")), Some(made.clone()));
    assert_eq!(fs::read_to_string(made.join("result")).unwrap(), "whole");
    assert_eq!(cache.artefact("kind", &key("b")), None);
    assert_eq!(cache.artefact("other", &key("a")), None);
}

#[test]
fn a_changed_name_content_or_execute_bit_changes_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let digest = || {
        let mut key = Key::new();
        key.tree("tree", folder.path(), &|path| path.extension().is_none())
            .unwrap();
        key.digest()
    };
    let file = folder.path().join("a");
    fs::write(&file, "1").unwrap();
    let first = digest();
    fs::write(folder.path().join("notes.md"), "not an input").unwrap();
    assert_eq!(digest(), first);
    fs::write(&file, "2").unwrap();
    let content = digest();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let executable = digest();
    fs::rename(&file, folder.path().join("b")).unwrap();
    let renamed = digest();
    let mut all = vec![first, content, executable, renamed];
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4);
}

#[test]
fn a_value_cannot_pose_as_another_input() {
    let mut one = Key::new();
    one.text("a", "x\"\nb = \"y");
    let mut two = Key::new();
    two.text("a", "x").text("b", "y");
    assert_ne!(one.digest(), two.digest());
}

#[test]
fn the_last_used_artefacts_survive_and_recent_ones_too() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let now = SystemTime::now();
    for number in 0..6 {
        let path = cache
            .make("kind", &key(&number.to_string()), |_| {
                Ok::<(), CacheError>(())
            })
            .unwrap();
        let age = Duration::from_secs(3600 * (1 + 24 * number));
        let stamp = File::options()
            .append(true)
            .open(path.join(INPUTS))
            .unwrap();
        stamp.set_modified(now - age).unwrap();
    }
    let kept = |cache: &Cache| {
        (0..6)
            .filter(|number| cache.entry("kind", &key(&number.to_string())).exists())
            .count()
    };
    cache
        .collect_garbage(now - Duration::from_secs(3600 * 24 * 4))
        .unwrap();
    assert_eq!(
        kept(&cache),
        6 - 1,
        "only what is older than a day by that clock"
    );
    cache.collect_garbage(now).unwrap();
    assert_eq!(kept(&cache), KEPT_OF_EACH_KIND);
}

#[test]
fn a_second_build_waits_for_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let first = cache.lock(|| panic!("it is not locked")).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = cache.clone();
    let second = std::thread::spawn(move || other.lock(|| sender.send(()).unwrap()).map(drop));
    receiver.recv().unwrap();
    drop(first);
    second.join().unwrap().unwrap();
}

#[test]
fn unfinished_work_of_a_dead_build_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let left = folder.path().join("temporary/firmware/build");
    fs::create_dir_all(&left).unwrap();
    let _lock = cache.lock(|| ()).unwrap();
    assert!(!folder.path().join("temporary/firmware").exists());
}
