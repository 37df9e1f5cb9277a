"""The reproduction: data, models, training, records, figures. Needs the extra `study`."""
