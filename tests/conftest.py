"""Its being here puts this folder on the path, so that tests of any room share its modules."""
