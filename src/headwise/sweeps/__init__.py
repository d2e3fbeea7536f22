"""Small trainings that show how many heads a task needs."""
